"""Appends a second of a replicated live store, and the lag of its followers.

The servers must run, and a copy must lead. The appended documents stay.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import suffolk
from research.command import command_parser, run_command
from suffolk.datastore.documents import Document

DOCUMENT_TOKENS = 500
SAMPLE_SECONDS = 0.1
LAG = re.compile(r"^suffolk_replica_lag_seconds\{[^}]*\} (\S+)$", re.MULTILINE)


class LagSampler:
    """Reads the lag of followers from their metrics in a thread, until ``stop``.

    Attributes:
        highest: the highest lag of any follower, in seconds.
        samples: how many were read.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.highest, self.samples = 0.0, 0
        self._urls = urls
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            for url in self._urls:
                with urllib.request.urlopen(url) as reply:
                    found = [float(value) for value in LAG.findall(reply.read().decode())]
                self.highest = max([self.highest, *found])
                self.samples += len(found)


def run(args: argparse.Namespace) -> int:
    with suffolk.open(args.address, append=True) as store:
        chooser = np.random.default_rng(1)
        tokens = chooser.integers(0, store.vocab_size, (64, DOCUMENT_TOKENS))

        def append(number: int) -> float:
            begun = time.perf_counter()
            store.append_batch([Document(None, {}, tokens[number % 64])])
            return time.perf_counter() - begun

        for _ in range(20):
            append(0)
        for threads in (1, 8):
            sampler = LagSampler(args.metrics)
            begun = time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                seconds = sorted(pool.map(append, range(args.appends)))
            rate = args.appends / (time.perf_counter() - begun)
            sampler.stop()
            p50, p99 = (1000 * seconds[int(share * len(seconds))] for share in (0.5, 0.99))
            print(
                f"{threads} callers: {rate:.0f} appends/s of {DOCUMENT_TOKENS} tokens, p50 {p50:.2f} ms, p99 {p99:.2f} ms; "
                f"highest lag {sampler.highest:.3f} s in {sampler.samples} samples"
            )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("replication_lag", __doc__, "grpc://a:7700,b:7700/chat --metrics http://b:7701/metrics")
    add = parser.add_argument
    add("address", metavar="URL", help="all copies of the store")
    add("--metrics", action="append", default=[], metavar="URL", help="metrics of a follower; may be repeated")
    add("--appends", type=int, default=2000, metavar="N", help="documents to append (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
