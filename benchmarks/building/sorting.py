"""Measures sorting tokens into a suffix array, compared to one call of pydivsufsort on the same tokens."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.datastore_options import BuildingOptions
from suffolk.benchmarks.folder import writing
from suffolk.benchmarks.processes import helper_command, resident_memory, run_watched
from suffolk.benchmarks.report import import_optional
from suffolk.build_index.plan import segment_bytes
from suffolk.build_index.progress import part_progress
from suffolk.datastore import _native
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import Internal
from suffolk.datastore.host_memory import process_memory
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.segment import separator, token_dtype, write_segment

YARDSTICK = "pydivsufsort"
REPEATED_FILE = "one document again and again"
REPEATED_TOKEN = "one token again and again"
COPIES = 1000
COMPARED = 200_000

Tokens = npt.NDArray[Any]


def measure_sorting(tokens: Tokens, workdir: Path, options: BuildingOptions, store: Manifest) -> dict[str, Any]:
    """Sort prefixes of ``tokens`` (uint16, with separators) of ``store``. Return seconds and tokens per second by input and sort.

    Raises:
        Unsupported: pydivsufsort is not installed.
        Internal: an order is wrong.
    """
    divsufsort = require_yardstick()
    threads = sorted({1, options.threads or os.cpu_count() or 1})
    results = {}
    for size in sorted({min(size, len(tokens)) for size in options.sort_tokens}):
        results[f"{size:,} tokens"] = _measure(ended(tokens[:size]), options, store, threads, divsufsort)
    for name, repeated in _repeats(tokens, options.sort_repeats):
        results[name] = _measure(ended(repeated), options, store, threads[-1:])
    return {"inputs": results, "segment_memory": _segment_memory(tokens, workdir, store, threads[-1])}


def require_yardstick() -> Callable[[bytes], object]:
    """Return ``pydivsufsort.divsufsort``, the sort that Suffolk's is compared to. Raises Unsupported if it is not installed."""
    divsufsort: Callable[[bytes], object] = import_optional(YARDSTICK, YARDSTICK).divsufsort
    return divsufsort


def read_tokens(store: Datastore, limit: int) -> Tokens:
    """Return the first ``limit`` tokens of a datastore, in segment order with a separator after each document."""
    dtype = token_dtype(store.manifest.vocab_size)
    parts: list[Tokens] = []
    length = 0
    for document in store.documents():
        parts += [document.tokens.astype(dtype), np.array([separator(dtype)], dtype)]
        length += len(document.tokens) + 1
        if length >= limit:
            break
    return np.concatenate(parts)[:limit]


def _measure(
    tokens: Tokens,
    options: BuildingOptions,
    store: Manifest,
    threads: Sequence[int],
    divsufsort: Callable[[bytes], object] | None = None,
) -> dict[str, Any]:
    ways: dict[str, Callable[[], Any]] = {}
    if divsufsort is not None:
        # Big-endian bytes sort like the tokens. A byte-wise sort
        # must also sort the suffixes that begin at odd byte offsets.
        ways[YARDSTICK] = partial(divsufsort, tokens.astype(">u2").tobytes())
    for count in threads:
        name = f"suffolk, {count} {'thread' if count == 1 else 'threads'}"
        ways[name] = partial(_native.sort_suffixes, tokens, store.vocab_size, store.order_depth, count)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with part_progress(options.sort_rounds * len(ways), f"sorts of {len(tokens):,} tokens") as done:
        for number in range(options.sort_rounds):
            for name in list(ways) if number % 2 == 0 else list(ways)[::-1]:
                begin = time.perf_counter()
                positions = ways[name]()
                seconds[name].append(time.perf_counter() - begin)
                if name != YARDSTICK and number == 0:
                    _check(tokens, np.asarray(positions), options, store)
                del positions
                done(sum(map(len, seconds.values())))
    rates = {name: len(tokens) / median(each) for name, each in seconds.items()}
    times = {name: rate / rates[YARDSTICK] for name, rate in rates.items() if YARDSTICK in rates and name != YARDSTICK}
    return {"tokens": len(tokens), "seconds": seconds, "tokens_per_second": rates, "times_the_yardstick": times}


def _check(tokens: Tokens, positions: Tokens, options: BuildingOptions, store: Manifest) -> None:
    """Check that neighbours at random ranks are in order, and that every suffix occurs once."""
    if np.bincount(positions, minlength=len(tokens)).max(initial=0) > 1 or len(positions) != int(
        np.count_nonzero(tokens != separator(tokens.dtype))
    ):
        raise Internal("the sort lost suffixes; report this as a bug")
    ranks = np.random.default_rng(options.seed).integers(0, max(1, len(positions) - 1), COMPARED)
    one, other = (
        positions[ranks].astype(np.int64),
        positions[np.minimum(ranks + 1, len(positions) - 1)].astype(np.int64),
    )
    undecided = one != other
    for depth in range(store.order_depth):
        first = tokens[np.minimum(one + depth, len(tokens) - 1)]
        second = tokens[np.minimum(other + depth, len(tokens) - 1)]
        if (undecided & (first > second)).any():  # a separator is the largest value; the end sorts last
            raise Internal("the sort put suffixes in the wrong order; report this as a bug")
        undecided &= (first == second) & (first != separator(tokens.dtype))
    if (undecided & (one > other)).any():
        raise Internal("the sort put equal suffixes in the wrong order; report this as a bug")


def _repeats(tokens: Tokens, size: int) -> Iterator[tuple[str, Tokens]]:
    """Yield named inputs that consist only of repeats, which are the worst case for a comparison sort."""
    if size:
        tokens = tokens[tokens != separator(tokens.dtype)]
        yield f"{REPEATED_FILE} ({COPIES:,} times)", np.tile(ended(tokens[: size // COPIES]), COPIES)
        yield f"{REPEATED_TOKEN} ({size:,} times)", np.full(size, tokens[0], tokens.dtype)


def ended(tokens: Tokens) -> Tokens:
    """Return ``tokens`` with a separator as the last token."""
    copy: Tokens = tokens.copy()
    copy[-1] = separator(tokens.dtype)
    return copy


def _segment_memory(tokens: Tokens, workdir: Path, store: Manifest, threads: int) -> dict[str, Any]:
    """Measure the peak memory of building one segment in its own process. Return it with the estimate of a build plan."""
    path = workdir / "tokens.npy"
    with writing(path):
        np.save(path, ended(tokens))
    settings = {"vocab_size": store.vocab_size, "order_depth": store.order_depth, "threads": threads}
    outcome: dict[str, Any] = json.loads(run_watched(helper_command(build_segment, path=str(path), **settings)).output)
    path.unlink()
    planned = segment_bytes(len(tokens), tokens.dtype.itemsize)
    return {
        "tokens": len(tokens),
        **outcome,
        "bytes_per_token": outcome["peak_bytes"] / len(tokens),
        "planned_bytes": planned,
    }


def build_segment(path: str, **settings: Any) -> dict[str, Any]:
    """Write a segment of the tokens in the file ``path``, and remove it. For a process of its own, whose memory is measured.

    Returns seconds, file_bytes, and peak_bytes, the largest resident memory while sorting and writing, without the interpreter
    and its libraries. ``settings``: as for ``write_segment``.
    """
    before = sum(resident_memory().values())
    tokens, segment = np.load(path), Path(path).with_suffix(".seg")
    begin = time.perf_counter()
    entry = write_segment(segment, tokens, **settings)
    seconds = time.perf_counter() - begin
    segment.unlink()
    return {"seconds": seconds, "peak_bytes": process_memory("VmHWM") - before, "file_bytes": entry.bytes}
