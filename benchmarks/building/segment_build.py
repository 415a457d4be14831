"""Writes one segment in its own process, to measure its memory: ``python -m`` this OPTIONS.

OPTIONS is a JSON object with tokens (a .npy file), vocab_size, order_depth and threads. Prints one JSON line: seconds, and
peak_bytes, the largest resident memory while sorting and writing, without the interpreter and its libraries.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from suffolk.benchmarks.processes import helper_arguments, peak_memory, resident_memory
from suffolk.datastore.segment import write_segment


def main(text: str) -> None:
    """Write the segment, print its numbers, and remove it."""
    options = json.loads(text)
    before = sum(resident_memory().values())
    tokens = np.load(options["tokens"])
    path = Path(options["tokens"]).with_suffix(".seg")
    begin = time.perf_counter()
    entry = write_segment(
        path,
        tokens,
        vocab_size=options["vocab_size"],
        order_depth=options["order_depth"],
        threads=options["threads"],
    )
    seconds = time.perf_counter() - begin
    path.unlink()
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_memory() - before, "file_bytes": entry.bytes}))


if __name__ == "__main__":
    main(*helper_arguments(1, "suffolk bench build"))
