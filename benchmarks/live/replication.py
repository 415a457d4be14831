"""Measures appends to a replicated live store, and the lag of its followers.

``python -m suffolk.benchmarks.live.replication grpc://a:7700,b:7700/chat --metrics http://b:7701/metrics``. The servers must run,
and a copy must lead. The documents stay.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import suffolk
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--metrics", action="append", default=[], help="URL of a follower's metrics")
    parser.add_argument("--appends", type=int, default=2000)
    options = parser.parse_args()
    with suffolk.open(options.address, append=True) as store:
        chooser = np.random.default_rng(1)
        tokens = chooser.integers(0, store.vocab_size, (64, DOCUMENT_TOKENS))

        def append(number: int) -> float:
            begun = time.perf_counter()
            store.append_batch([Document(None, {}, tokens[number % 64])])
            return time.perf_counter() - begun

        for _ in range(20):
            append(0)
        for threads in (1, 8):
            sampler = LagSampler(options.metrics)
            begun = time.perf_counter()
            with ThreadPoolExecutor(threads) as pool:
                seconds = sorted(pool.map(append, range(options.appends)))
            rate = options.appends / (time.perf_counter() - begun)
            sampler.stop()
            p50, p99 = (1000 * seconds[int(share * len(seconds))] for share in (0.5, 0.99))
            print(
                f"{threads} callers: {rate:.0f} appends/s of {DOCUMENT_TOKENS} tokens, p50 {p50:.2f} ms, p99 {p99:.2f} ms; "
                f"highest lag {sampler.highest:.3f} s in {sampler.samples} samples"
            )


if __name__ == "__main__":
    main()
