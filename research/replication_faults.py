"""Faults of real servers with copies of a live store, under appends and deletions.

Three servers run on this machine. They are killed and stopped. Their links are cut in one direction or both, or reset
at one end. Their disks are full, fail, are emptied, put back, or damaged at the end.
At last everything is repaired. What was acknowledged must be there once, and all copies equal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import suffolk
from research.command import add_seed, command_parser, run_command
from research.cut_links import Link
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, NotFound, SuffolkError
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import create_live_store
from suffolk.serving.store.replication.messages import ReplicaStatus
from suffolk.serving.store.replication.peer import read_replicas
from suffolk.serving.store.replication.register import open_register
from suffolk.serving.store.replication.replicated_store import ReplicaSettings, ReplicatedStore

SERVERS, WRITERS, VOCABULARY = 3, 3, 64
SETTLE_SECONDS = 300.0
FAULTS = (
    "kill",
    "kill leader",
    "stop",
    "cut",
    "one way",
    "reset",
    "full",
    "broken",
    "empty",
    "rollback",
    "tail",
    ALL := "kill all",
)
DAMAGES = ("empty", "rollback", "tail")


class Servers:
    """The servers, their links, and what fails their disks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.library = _failing_disk(folder)
        self.ports = [_free_port() for _ in range(SERVERS)]
        self.links = {(a, b): Link(self.ports[b]) for a in range(SERVERS) for b in range(SERVERS) if a != b}
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for number in range(SERVERS):
            self.make(number)

    def path(self, number: int) -> Path:
        return self.folder / str(number) / "chat"

    def url(self, number: int) -> str:
        return f"grpc://127.0.0.1:{self.ports[number]}/chat"

    @property
    def address(self) -> str:
        return f"grpc://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/chat"

    def make(self, number: int) -> None:
        """An empty disk."""
        shutil.rmtree(self.path(number).parent, ignore_errors=True)
        create_live_store(self.path(number), vocab_size=VOCABULARY).close()

    def start(self, number: int) -> None:
        if number in self.processes:
            return
        command = [sys.executable, "-m", "suffolk", "serve", "--live", str(self.path(number)), "--http", "off"]
        command += ["--listen", f"127.0.0.1:{self.ports[number]}", "--register", f"file://{self.folder}/register"]
        command += [
            f"--peer=grpc://127.0.0.1:{self.links[number, other].port}" for other in range(SERVERS) if other != number
        ]
        environment = dict(os.environ, FAILING_DISK=str(self.word(number)))
        if self.library is not None:
            environment["LD_PRELOAD"] = str(self.library)
        log = open(self.folder / f"{number}.err", "a")  # noqa: SIM115  it is the process's
        self.processes[number] = subprocess.Popen(
            [*command, "--durability", "always"], env=environment, stdout=log, stderr=log, text=True
        )

    def word(self, number: int) -> Path:
        """The file that says how the disk of a server fails."""
        return self.folder / f"{number}.disk"

    def kill(self, number: int) -> None:
        if (process := self.processes.pop(number, None)) is not None:
            process.kill()
            process.wait()

    def statuses(self) -> dict[int, ReplicaStatus]:
        found = read_replicas([self.url(number) for number in range(SERVERS)])
        return {number: each for number, each in enumerate(found.values()) if isinstance(each, ReplicaStatus)}

    def await_answers(self) -> None:
        """Wait until all servers answer. Raises DeadlineExceeded."""
        end = time.monotonic() + SETTLE_SECONDS
        while len(self.statuses()) < SERVERS:
            if time.monotonic() > end:
                raise DeadlineExceeded(f"only {len(self.statuses())} servers answer after {SETTLE_SECONDS:g} s")
            time.sleep(0.1)

    def await_step(self, equal: bool = False) -> None:
        """Wait until all copies are in sync, and equal if nothing is written. Raises DeadlineExceeded."""
        end = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < end:
            found = self.statuses()
            contents = {(each.position, each.digest) for each in found.values()}
            in_sync = len(found) == SERVERS and all(each.in_sync for each in found.values())
            if in_sync and (len(contents) == 1 or not equal):
                return
            time.sleep(0.1)
        raise DeadlineExceeded(f"the copies are not in sync after {SETTLE_SECONDS:g} s: {self.statuses()}")


@dataclass
class Writer:
    """A thread that appends and deletes, and notes what was acknowledged."""

    number: int
    address: str
    chooser: random.Random
    appended: dict[str, bool] = field(default_factory=dict)
    deleted: dict[str, bool] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)

    def run(self, stopped: threading.Event) -> None:
        with suffolk.open(self.address, append=True) as store:
            while not stopped.is_set():
                sure = [
                    name for name, acknowledged in self.appended.items() if acknowledged and name not in self.deleted
                ]
                if sure and self.chooser.random() < 0.3:
                    name = self.chooser.choice(sure[-50:])
                    self._try(self.deleted, name, partial(store.delete, [name]))
                else:
                    name = f"{self.number}-{len(self.appended)}-{self.chooser.randrange(1 << 30)}"
                    self._try(self.appended, name, partial(store.append, _tokens(name), id=name))

    def _try(self, made: dict[str, bool], name: str, change: Callable[[], Any]) -> None:
        made[name] = False
        try:
            change()
        except NotFound:
            made[name] = True  # an earlier deletion of unknown outcome
        except SuffolkError as error:
            if error.change == "none":
                del made[name]
            time.sleep(0.05)
        else:
            made[name] = True
            self.times.append(time.monotonic())


class Fault(NamedTuple):
    """A fault that was made.

    Attributes:
        since: when changes could be acknowledged again.
        alone: whether all copies were in sync before; else another one was still coming back.
    """

    kind: str
    begun: float
    since: float
    alone: bool


class Faults:
    """Lets one thing fail at a time, and repairs it after some seconds."""

    def __init__(self, servers: Servers, chooser: random.Random, kinds: Sequence[str]) -> None:
        self.servers, self.chooser, self.kinds = servers, chooser, kinds
        self.begun: list[Fault] = []

    def once(self) -> None:
        servers, chooser = self.servers, self.chooser
        kind, victim = chooser.choice(self.kinds), chooser.randrange(SERVERS)
        statuses = servers.statuses()
        if kind in ("kill leader", *DAMAGES) or chooser.random() < 0.5:
            leaders = [number for number, each in statuses.items() if each.leads]
            victim = leaders[0] if leaders and kind != "empty" else victim
        alone = sum(each.in_sync for each in statuses.values()) == SERVERS
        if kind in DAMAGES and not alone:
            return  # another copy must be whole
        begun = time.monotonic()
        repair = self._begin(kind, victim)
        time.sleep(chooser.uniform(0.5, 6))
        repair()
        since = time.monotonic() if kind == ALL else begun  # without servers, nothing is acknowledged
        self.begun.append(Fault(kind, begun, since, alone))
        for number in range(SERVERS):
            servers.start(number)
        servers.await_answers()  # else one server after another is killed while it starts
        if kind in DAMAGES:
            servers.await_step()
        time.sleep(chooser.uniform(0, 3))

    def _mend(self, victim: int) -> None:
        """A disk that failed is used again by another process."""
        self.servers.word(victim).write_text("")
        self.servers.kill(victim)

    def _begin(self, kind: str, victim: int) -> Callable[[], object]:
        servers = self.servers
        if kind in ("full", "broken"):
            servers.word(victim).write_text(kind)
            return partial(self._mend, victim)
        if kind == "stop":
            process = servers.processes[victim]
            process.send_signal(signal.SIGSTOP)
            return lambda: process.send_signal(signal.SIGCONT)
        near = [servers.links[victim, other] for other in range(SERVERS) if other != victim]
        far = [servers.links[other, victim] for other in range(SERVERS) if other != victim]
        if kind == "reset":
            for link in (*near, *far):
                link.reset(caller=self.chooser.random() < 0.5)
        elif kind in ("cut", "one way"):
            chosen = [*near, *far] if kind == "cut" else self.chooser.choice([near, far])
            _set_cut(chosen, True)
            return lambda: _set_cut(chosen, False)
        elif kind == ALL:
            for number in range(SERVERS):
                servers.kill(number)
        elif kind == "rollback":
            saved = servers.folder / "saved"
            shutil.rmtree(saved, ignore_errors=True)
            shutil.copytree(servers.path(victim), saved)
            time.sleep(2)
            servers.kill(victim)
            shutil.rmtree(servers.path(victim))
            shutil.copytree(saved, servers.path(victim))
        else:
            servers.kill(victim)
            if kind == "empty":
                servers.make(victim)
            elif kind == "tail":
                log = max((servers.path(victim) / "live" / "log").glob("*.log"))
                content = log.read_bytes()
                log.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        return lambda: None


def measure(args: argparse.Namespace) -> int:
    """Run the study; returns 0 if nothing is lost, twice or back, and all copies are equal."""
    if args.minutes <= 0:
        raise InvalidArgument(f"--minutes is {args.minutes:g}; it must be above 0")
    chooser, stopped = random.Random(args.seed), threading.Event()
    with tempfile.TemporaryDirectory(prefix="suffolk-faults-", ignore_cleanup_errors=True) as name:
        servers = Servers(Path(name))
        kinds = [kind for kind in args.kinds if servers.library is not None or kind not in ("full", "broken")]
        writers = [Writer(number, servers.address, random.Random(f"{args.seed} {number}")) for number in range(WRITERS)]
        threads = [threading.Thread(target=each.run, args=(stopped,)) for each in writers]
        faults = Faults(servers, chooser, kinds)
        try:
            for number in range(SERVERS):
                servers.start(number)
            servers.await_step()
            for thread in threads:
                thread.start()
            end = time.monotonic() + 60 * args.minutes
            while time.monotonic() < end:
                faults.once()
            servers.await_step()
            stopped.set()
            for thread in threads:
                thread.join()
            servers.await_step(equal=True)
        finally:
            stopped.set()
            for number in range(SERVERS):
                servers.kill(number)
        return report(servers, writers, faults.begun)


def report(servers: Servers, writers: Sequence[Writer], faults: Sequence[Fault]) -> int:
    """Print the result as JSON; returns 1 if a promise is broken."""
    register = open_register(f"file://{servers.folder}/register", "chat")
    copies = []
    for number in range(SERVERS):
        with ReplicatedStore(servers.path(number), LiveSettings(threads=1), register, ReplicaSettings()) as store:
            copies.append(Counter((str(each.source), tuple(each.tokens.tolist())) for each in store.documents()))
    found = Counter(name for name, _ in copies[0].elements())
    deleted = {name: sure for each in writers for name, sure in each.deleted.items()}
    appended = {name: sure for each in writers for name, sure in each.appended.items()}
    times = sorted(time for each in writers for time in each.times)
    gaps: dict[str, list[float]] = defaultdict(list)
    for fault, following in zip_longest(faults, faults[1:]):
        kind = fault.kind if fault.alone or fault.kind == ALL else "two at once"
        gaps[kind].append(_gap(times, fault, math.inf if following is None else following.begun))
    result = {
        "acknowledged": {"appends": sum(appended.values()), "deletions": sum(deleted.values())},
        "lost": sum(sure and name not in deleted and name not in found for name, sure in appended.items()),
        "doubled": sum(count > 1 for count in found.values()),
        "resurrected": sum(sure and name in found for name, sure in deleted.items()),
        "copies differ": any(each != copies[0] for each in copies),
        "faults": {kind: {"count": len(found), **_seconds(found)} for kind, found in gaps.items()},
        "faults of one server": _seconds([each for kind in gaps.keys() - {ALL, "two at once"} for each in gaps[kind]]),
        "all faults": _seconds([each for found in gaps.values() for each in found]),
    }
    print(json.dumps(result, indent=2))
    return int(bool(result["lost"] or result["doubled"] or result["resurrected"] or result["copies differ"]))


def _gap(times: Sequence[float], fault: Fault, following: float) -> float:
    """The longest time without an acknowledgement since a fault that began within 8 s, and before the ``following`` fault.

    One that began up to half a second before the ``following`` fault is that one's.
    """
    since, end = fault.since, max(fault.since, min(fault.since + 8, following - 0.5))
    pairs = zip(times, times[1:], strict=False)
    return max((after - max(before, since) for before, after in pairs if after > since and before < end), default=0.0)


def _seconds(gaps: Sequence[float]) -> dict[str, float]:
    """Seconds without an acknowledgement."""
    if not gaps:
        return {}
    ordered = sorted(gaps)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {"median": round(statistics.median(ordered), 2), "p95": round(p95, 2), "most": round(ordered[-1], 2)}


def _tokens(name: str) -> list[int]:
    chooser = random.Random(name)
    return [chooser.randrange(VOCABULARY) for _ in range(8)]


def _set_cut(links: Sequence[Link], cut: bool) -> None:
    for link in links:
        link.cut = cut


def _failing_disk(folder: Path) -> Path | None:
    """The library that fails disks; None without a compiler."""
    library = folder / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    with suppress(OSError, subprocess.CalledProcessError):
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, capture_output=True
        )
        return library
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), measure, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("replication_faults", __doc__, "--minutes 10")
    add, kinds = parser.add_argument, ", ".join(FAULTS)
    add("--minutes", type=float, default=10, metavar="N", help="duration (default: %(default)s)")
    add("--kinds", nargs="+", choices=FAULTS, default=FAULTS, metavar="KIND", help=f"of {kinds} (default: all)")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
