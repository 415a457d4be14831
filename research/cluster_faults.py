"""Kills processes of a cluster at random times under load: on Ray with three nodes on this machine.

Texts must equal plain decoding's, and no acknowledged append to a live store may be lost. Only
requests that were in a killed process may fail, or came while Ray Serve starts its proxy again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import suffolk
from research.cluster_load import Load, Outcome
from research.command import add_seed, command_parser, run_command
from research.local_ray import ENVIRONMENT, LocalRay, local_ray
from suffolk.datastore.errors import DeadlineExceeded, SuffolkError
from suffolk.datastore.manifest import read_manifest

NODES = ("a", "b", "c")
NAME = "faults"
RECOVERY_SECONDS = 180.0
FAULTS = ("store", "store actor", "worker", "worker actor", "controller", "front replica", "front proxy", "node")
_PROXY_SECONDS = 60.0
"""Seconds in which Ray Serve starts its proxy again. Until then the front's address refuses connections, or answers 404."""
_LATE = 10.0
"""Seconds after a kill in which a client may notice it."""


@dataclass
class Fault:
    """A kill: what, when, where requests may be lost, and how long until all servers ran again."""

    kind: str
    at: float
    addresses: set[str] = field(default_factory=set)
    seconds: float = 0.0

    def excuses(self, outcome: Outcome) -> bool:
        """Whether the request was in the killed process, or came while no proxy listened in its place."""
        if self.kind == "front proxy" and not outcome.worker:
            return self.at <= outcome.ended <= self.at + _PROXY_SECONDS
        within = outcome.began <= self.at <= outcome.ended <= self.at + _LATE
        if self.kind.startswith("front") or self.kind == "node":  # a replica of the front may run there
            return within
        return within and outcome.worker in self.addresses


def kill(kind: str, ray: LocalRay, servers: list[dict[str, Any]], choose: random.Random) -> Fault:
    """Kill a random process of ``kind``, or a node that is not the head."""
    if kind == "node":
        name = choose.choice(NODES[1:])
        lost = {each["http"] for each in servers if each.get("node") == name}
        fault = Fault(kind, time.time(), lost)
        ray.change(f"kill {name}")
        ray.change(f"add {name}")
        return fault
    word, _, part = kind.partition(" ")
    if word in ("store", "worker"):
        server = choose.choice([each for each in servers if each["kind"] == word])
        pid = psutil.Process(server["pid"]).ppid() if part else server["pid"]
        fault = Fault(kind, time.time(), {server["http"]})
    else:
        titles = {
            "controller": "ray::Controller",
            "front replica": "ray::ServeReplica",
            "front proxy": "ray::ProxyActor",
        }
        while not (found := ray.processes(titles[kind])):  # it starts again after the last kill
            time.sleep(0.1)
        pid = choose.choice(found)
        fault = Fault(kind, time.time())
    os.kill(pid, signal.SIGKILL)
    return fault


def settle(fault: Fault) -> dict[str, Any]:
    """Wait until all servers run again, and note how long it took. Raises DeadlineExceeded."""
    import ray

    from suffolk.serving.cluster.lifecycle import status

    time.sleep(1.0)
    while time.time() < fault.at + RECOVERY_SECONDS:
        with suppress(ray.exceptions.RayError, TimeoutError):
            found = status(NAME)
            if found["settled"] and len(found["nodes"]) == len(NODES):
                ends = [
                    each["time"] for each in found["events"] if each["event"] == "ready" and each["time"] > fault.at
                ]
                fault.seconds = max(ends, default=time.time()) - fault.at
                return found
        time.sleep(0.25)
    raise DeadlineExceeded(f"{fault.kind}: the servers do not run again after {RECOVERY_SECONDS:g} s")


def measure(args: argparse.Namespace) -> int:
    """Run the study; returns 0 if no request failed without excuse."""
    read_manifest(args.store)  # raises before Ray starts
    os.environ.update(ENVIRONMENT)  # before Ray is imported
    from suffolk.build_index.on_ray.connection import connected
    from suffolk.serving.cluster import lifecycle
    from suffolk.serving.cluster.config import config_from

    choose = random.Random(args.seed)
    faults: list[Fault] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, local_ray(NODES) as ray:
        values = {
            "name": NAME,
            "folder": folder,
            "stores": {
                "datastores": {"code": str(args.store.absolute())},
                "port": args.port + 1,
                "register": f"file://{folder}/register",
                "live": {"chat": {"tokenizer": str(args.model.absolute()), "shards": args.shards}},
            },
            "workers": {"model": str(args.model.absolute()), "count": args.workers, "options": {"slots": 4}},
            "front": {"port": args.port, "replicas": 2},
        }
        with connected(ray.address):
            lifecycle.up(config_from(values, "the study"), print)
            load = Load(args.port, args.model.absolute().name, args.tokens, args.clients, args.seed)
            found, end = lifecycle.status(NAME), time.time() + 60 * args.minutes
            servers, appends = found["servers"], Appends(chat_address(found, args.shards))
            try:
                kinds: list[str] = []
                while time.time() < end:
                    time.sleep(choose.uniform(1, 5))
                    kinds = kinds or choose.sample(args.kinds, len(args.kinds))
                    fault = kill(kinds.pop(), ray, servers, choose)
                    faults.append(fault)
                    servers = settle(fault)["servers"]
                    print(f"{fault.kind}: {fault.seconds:.1f} s", flush=True)
            finally:
                load.stop()
                lost = appends.lost()
            print("stopped", ", ".join(lifecycle.down(NAME)))
    print(f"appends: {len(appends.acknowledged)} acknowledged, {len(lost)} lost, longest wait {appends.longest:.1f} s")
    return report(load.outcomes, faults) or bool(lost)


def chat_address(status: dict[str, Any], shards: int) -> str:
    """The address of the live store of the cluster with this ``status``."""
    if shards > 1:
        return str(Path(status["topology"]).with_name("topology-chat.json"))
    return f"grpc://{','.join(each['grpc'] for each in status['servers'] if each['kind'] == 'store')}/chat"


def report(outcomes: Sequence[Outcome], faults: Sequence[Fault]) -> int:
    """Print the result as JSON; returns 1 if a request failed that had not reached a killed process, or gave another text."""
    times = defaultdict(list)
    for fault in faults:
        times[fault.kind].append(fault.seconds)
    failed = [each for each in outcomes if each.problem]
    wrong = [
        each for each in failed if not any(fault.excuses(each) for fault in faults) or "another text" in each.problem
    ]
    print(
        json.dumps(
            {
                "requests": len(outcomes),
                "failed in a killed process, or without a proxy": len(failed) - len(wrong),
                "failed otherwise": len(wrong),
                "connections refused first": sum(each.refused > 0 for each in outcomes),
                "recovery seconds": {
                    kind: {
                        "kills": len(found),
                        "median": round(statistics.median(found), 1),
                        "most": round(max(found), 1),
                    }
                    for kind, found in times.items()
                },
            },
            indent=2,
        )
    )
    for each in wrong[:10]:
        print(f"failed: {each}")
    return 1 if wrong else 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), measure, arguments)


def _parser() -> argparse.ArgumentParser:
    example = "--model .cache/models/smollm2-135m-instruct --store STORE --minutes 10"
    parser = command_parser("cluster_faults", __doc__, example)
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="FOLDER", help="the target model")
    add("--store", type=Path, required=True, metavar="STORE", help="folder of a datastore")
    add("--minutes", type=float, default=10, metavar="N", help="duration (default: %(default)s)")
    add("--workers", type=int, default=3, metavar="N", help="workers (default: %(default)s)")
    add("--shards", type=int, default=1, metavar="N", help="shards of the live store (default: %(default)s)")
    add("--clients", type=int, default=4, metavar="N", help="requests at a time (default: %(default)s)")
    add("--tokens", type=int, default=48, metavar="N", help="tokens of an answer (default: %(default)s)")
    add("--port", type=int, default=8124, metavar="N", help="port of the front (default: %(default)s)")
    add(
        "--kinds",
        nargs="+",
        choices=FAULTS,
        default=FAULTS,
        metavar="KIND",
        help=f"of {', '.join(FAULTS)} (default: all)",
    )
    add_seed(parser)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())


class Appends:
    """A thread that appends to the live store at ``address``, until ``lost`` is called."""

    def __init__(self, address: str) -> None:
        self._url = address
        self.acknowledged: list[int] = []
        self.longest = 0.0  # seconds between two acknowledged appends
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def lost(self) -> list[int]:
        """End the thread. Returns the numbers of the acknowledged documents that are not found exactly once."""
        self._stopping.set()
        self._thread.join()
        with suffolk.open(self._url, deadline=10, append=True) as store:
            store.stats()  # raises Unavailable: no copy leads
            return [number for number in self.acknowledged if store.lookup(_tokens(number)).count != 1]

    def _run(self) -> None:
        with suffolk.open(self._url, append=True) as store:
            number, last = 0, time.monotonic()
            while not self._stopping.wait(0.02):
                try:
                    store.append(_tokens(number), id=str(number))
                except SuffolkError:  # it may stay or vanish
                    number += 1
                    continue
                self.acknowledged.append(number)
                number, now = number + 1, time.monotonic()
                self.longest, last = max(self.longest, now - last), now


def _tokens(number: int) -> list[int]:
    return [1000 + number // 1000, 2000 + number % 1000]
