"""Measures the latency of a draft service while generations of its datastore are published, beside quiet time."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from research.command import command_parser, run_command
from suffolk.benchmarks.report import make_report, quantiles_us, write_report
from suffolk.benchmarks.service.load import served
from suffolk.build_index.builder import build
from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.checks import check_range
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, publish, read_manifest
from suffolk.datastore.readers import wait_for_readers
from suffolk.serving.clients.remote_datastore import connect

DEADLINE = 5.0
NOTES = (
    "quiet and changing windows alternate; in each changing window one prepared generation is published, in turn: an "
    "append, a deletion, a compaction, and the original files",
    "calls start at fixed times, and latency counts from there; noticed: publication to service, polled every 50 ms",
)


@dataclass
class Calls:
    """Latencies in seconds by kind of window, and the errors of failed calls."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"quiet": [], "changing": []})
    errors: list[str] = field(default_factory=list)
    window: str = "quiet"


@contextmanager
def calling(url: str, contexts: Sequence[Any], batch: int, clients: int, rate: float) -> Iterator[Calls]:
    """Send ``rate`` calls a second from each of ``clients`` threads during the block."""
    calls, stop = Calls(), threading.Event()

    def ask(client: int) -> None:
        with connect(url, DEADLINE) as store:
            begin = time.perf_counter() + client / clients / rate
            for number in range(sys.maxsize):
                due = begin + number / rate
                if stop.wait(max(0.0, due - time.perf_counter())):
                    return
                window, first = calls.window, number * batch % len(contexts)
                try:
                    store.draft_batch(contexts[first : first + batch])
                    calls.seconds[window].append(time.perf_counter() - due)
                except SuffolkError as error:
                    calls.errors.append(str(error))

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield calls
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def prepare(store: Path, copy: Path, aside: Path) -> list[Manifest]:
    """Copy ``store``, change the copy in every way, and keep the segments of all its generations in ``aside``."""
    shutil.copytree(store, copy)
    aside.mkdir()
    with open_datastore(copy) as opened:
        name, index, origin = next(opened.origins())
        np.save(aside / "more.npy", opened.read_document(name, index).astype(np.int32))
    more = BuildOptions(corpora=(str(aside / "more.npy"),), output=copy, mode="append")
    changes = (lambda: build(more), lambda: delete(copy, [origin.source or ""]), lambda: compact(copy))
    manifests = [_keep(copy, aside)]
    for change in changes:
        change()
        manifests.append(_keep(copy, aside))
    for manifest in manifests:
        for entry in manifest.files():
            if not (copy / SEGMENTS_NAME / entry.name).exists():
                os.link(aside / entry.name, copy / SEGMENTS_NAME / entry.name)
    return manifests


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Latencies of quiet and of changing windows, errors, and seconds until each generation is served."""
    read_manifest(args.store)  # raises before anything is copied
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        store = Path(folder) / "store"
        manifests = prepare(args.store, store, Path(folder) / "aside")
        with open_datastore(store) as opened:
            tokens = next(opened.documents()).tokens.astype(np.int32)
        contexts = [tokens[end - 16 : end] for end in range(16, len(tokens))]
        noticed: list[float] = []
        with served(store) as url, calling(url, contexts, args.batch, args.clients, args.rate) as calls:
            time.sleep(args.window)
            calls.seconds["quiet"].clear()  # connections and first pages
            for manifest in islice(cycle(manifests), args.rounds):
                calls.window = "quiet"
                time.sleep(args.window)
                calls.window = "changing"
                begin = time.monotonic()
                generation = read_manifest(store).generation + 1
                publish(store, replace(manifest, generation=generation))
                assert all(each.generation == generation for each in wait_for_readers(store, generation))
                noticed.append(time.monotonic() - begin)
                time.sleep(max(0.0, begin + args.window - time.monotonic()))
    found = {window: quantiles_us(seconds) for window, seconds in calls.seconds.items()}
    ratio = found["changing"]["p99_us"] / found["quiet"]["p99_us"]
    return {**found, "p99_ratio": ratio, "errors": calls.errors, "noticed_s": noticed}


def run(args: argparse.Namespace) -> int:
    for name in ("rounds", "clients", "batch"):
        check_range(f"--{name}", getattr(args, name), 1, 256)
    results = measure(args)
    for window in ("quiet", "changing"):
        row = results[window]
        print(f"{window:<9} {row['calls']:6} calls  p50 {row['p50_us']:6.0f} us  p99 {row['p99_us']:6.0f} us")
    print(f"p99 {results['p99_ratio']:.2f} times the quiet p99, {len(results['errors'])} errors")
    print(f"{args.rounds} generations, each served within {max(results['noticed_s']):.2f} s")
    if args.json:
        settings = {name: str(value) for name, value in vars(args).items()}
        write_report(make_report("hot_swap", 0, settings, results, NOTES, ("numpy", "grpcio")), args.json)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("hot_swap", __doc__, "STORE --rounds 40 --json hot_swap.json")
    add = parser.add_argument
    add("store", type=Path, metavar="STORE", help="folder of a datastore; a copy of it is changed")
    add("--rounds", type=int, default=20, metavar="N", help="generations to publish (default: %(default)s)")
    add("--window", type=float, default=2.0, metavar="SECONDS", help="length of a window (default: %(default)s)")
    add("--clients", type=int, default=4, metavar="N", help="calling threads (default: %(default)s)")
    add("--rate", type=float, default=50.0, metavar="N", help="calls a second of each client (default: %(default)s)")
    add("--batch", type=int, default=8, metavar="N", help="contexts of a call (default: %(default)s)")
    add("--folder", type=Path, help="where the copy is made (default: the system's)")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    return parser


def _keep(store: Path, aside: Path) -> Manifest:
    manifest = read_manifest(store)
    for entry in manifest.files():
        if not (aside / entry.name).exists():
            os.link(store / SEGMENTS_NAME / entry.name, aside / entry.name)
    return manifest


if __name__ == "__main__":
    sys.exit(main())
