"""Measures how long one caller of a worker waits for its next token while another sends requests that are costly to read."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from research.command import command_parser, run_command
from suffolk.benchmarks.report import make_report, quantiles_us, write_report
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.worker.client import WorkerClient, connect_worker

MEGABYTE = 1 << 20
NOTES = (
    "quiet and attacked windows alternate; the attacker repeats its requests in a process of its own, without a pause",
    "gaps are times between two replies of the watched stream, which decodes plainly",
)


def _few_tokens(words: int = 0) -> SamplingSettings:
    """Four tokens, with ``words`` bad words of 64 tokens."""
    random = np.random.default_rng(0)
    bad = tuple(tuple(random.integers(0, 40_000, 64).tolist()) for _ in range(words))
    return SamplingSettings(max_new_tokens=4, ignore_eos=True, bad_words=bad)


def _text(letters: str) -> Callable[[WorkerClient, str], object]:
    return lambda client, address: list(client.generate((letters * MEGABYTE)[:MEGABYTE]))


def _body(path: str, body: bytes, method: str = "POST") -> Callable[[WorkerClient, str], object]:
    def send(client: WorkerClient, address: str) -> None:
        connection = http.client.HTTPConnection(address, timeout=600)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()

    return send


_BAD_WORDS = _few_tokens(1024)
ATTACKS: dict[str, Callable[[WorkerClient, str], object]] = {
    "words": _text("the quick brown fox "),
    "emoji": _text("\U0001f600\u00e9\u6f22"),
    "spaces": _text(" "),
    "lists": _body("/v1/completions", b'{"prompt": [' + b"[1]," * 320_000 + b"[1]]}"),
    "token ids": _body("/v1/completions", b'{"prompt": [' + b"12345," * 210_000 + b"1]}"),
    "tokenize": _body("/tokenize", json.dumps({"prompt": "\u6f22" * 150_000}).encode()),
    "unread": _body("/health", bytes(256 * MEGABYTE), "GET"),
    "bad words": lambda client, address: list(client.generate("Write.", _BAD_WORDS)),
    "no bad words": lambda client, address: list(client.generate("Write.", _few_tokens())),
    "long prompts": lambda client, address: list(client.generate("word " * 3000, SamplingSettings(max_new_tokens=1))),
}


def attack(name: str, url: str, address: str, clients: int, stop: Any, done: Any) -> None:
    """Repeat an attack in ``clients`` threads until ``stop`` is set; the attacker's process. ``done``: number of requests."""

    def repeat() -> None:
        with connect_worker(url) as client:
            while not stop.is_set():
                with contextlib.suppress(SuffolkError, OSError, http.client.HTTPException):
                    ATTACKS[name](client, address)
                with done.get_lock():
                    done.value += 1

    for _ in range(clients):
        threading.Thread(target=repeat, daemon=True).start()
    stop.wait()


@contextmanager
def working(model: str, slots: int) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A worker's process, its gRPC URL and its HTTP address."""
    words = ("worker", "--model", model, "--slots", str(slots), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    command = (sys.executable, "-m", "suffolk", *words, "--drafter", "none")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"on grpc (\S+), http (\S+)", line)
        if found is None:
            raise Unavailable(f"the worker did not start; it printed {line!r}")
        yield process, f"grpc://{found[1]}", found[2]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def gaps(client: WorkerClient, seconds: float) -> list[float]:
    """Times between two replies of one stream, for ``seconds`` after the first."""
    stream = client.generate("Once upon a time", SamplingSettings(max_new_tokens=3000, ignore_eos=True), drafter="none")
    next(stream)  # the prompt may wait behind prompts of others
    found, last = list[float](), time.perf_counter()
    end = last + seconds
    for _ in stream:
        now = time.perf_counter()
        found.append(now - last)
        last = now
        if now > end:
            break
    stream.cancel()
    return found


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Gaps of the watched stream in quiet and attacked windows, and the worker's memory, by attack."""
    spawn = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {}
    with working(args.model, args.slots) as (process, url, address), connect_worker(url) as client:
        gaps(client, 2.0)
        for name in args.attacks:
            quiet, attacked, requests = [], [], 0
            for _ in range(args.rounds):
                quiet += gaps(client, args.window)
                stop, done = spawn.Event(), spawn.Value("q", 0)
                attacker = spawn.Process(target=attack, args=(name, url, address, args.clients, stop, done))
                attacker.start()
                time.sleep(2.0)
                attacked += gaps(client, args.window)
                stop.set()
                attacker.join()
                requests += done.value
            status = Path(f"/proc/{process.pid}/status").read_text()
            memory = re.search(r"VmHWM:\s+(\d+)", status)
            results[name] = {
                "quiet": quantiles_us(quiet) | {"max_us": max(quiet) * 1e6},
                "attacked": quantiles_us(attacked) | {"max_us": max(attacked) * 1e6},
                "requests": requests,
                "peak_rss_mib": int(memory[1]) >> 10 if memory else 0,
            }
    return results


def run(args: argparse.Namespace) -> int:
    for name in ("rounds", "clients", "slots"):
        check_range(f"--{name}", getattr(args, name), 1, 256)
    results = measure(args)
    print(f"{'attack':<13} {'quiet p50/p99/max ms':>22} {'attacked':>25} {'requests':>9} {'peak MiB':>9}")
    for name, row in results.items():
        shown = [
            "/".join(f"{row[kind][key] / 1000:.0f}" for key in ("p50_us", "p99_us", "max_us"))
            for kind in row
            if kind in ("quiet", "attacked")
        ]
        print(f"{name:<13} {shown[0]:>22} {shown[1]:>25} {row['requests']:>9} {row['peak_rss_mib']:>9}")
    if args.json:
        settings = {name: str(value) for name, value in vars(args).items()}
        write_report(
            make_report("victim_latency", 0, settings, results, NOTES, ("torch", "transformers", "grpcio")), args.json
        )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("victim_latency", __doc__, "--model MODEL --rounds 5 --json victim_latency.json")
    add = parser.add_argument
    add("--model", required=True, metavar="MODEL", help="folder of the model")
    add("--attacks", nargs="+", default=list(ATTACKS), choices=list(ATTACKS), metavar="NAME", help="default: all")
    add("--slots", type=int, default=4, metavar="N", help="requests decoded at once (default: %(default)s)")
    add("--clients", type=int, default=4, metavar="N", help="threads of the attacker (default: %(default)s)")
    add("--rounds", type=int, default=2, metavar="N", help="windows of each kind (default: %(default)s)")
    add("--window", type=float, default=5.0, metavar="SECONDS", help="length of a window (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
