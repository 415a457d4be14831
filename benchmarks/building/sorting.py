"""Measures sorting tokens into a suffix array, compared to one call of pydivsufsort on the same tokens."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.building import segment_build
from suffolk.benchmarks.folder import writing
from suffolk.benchmarks.processes import run_watched
from suffolk.benchmarks.report import missing
from suffolk.build_index.plan import segment_bytes
from suffolk.build_index.progress import part_progress
from suffolk.datastore import _native
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import Internal
from suffolk.datastore.segment import separator, token_dtype

YARDSTICK = "pydivsufsort"
REPEATED_FILE = "one document again and again"
REPEATED_TOKEN = "one token again and again"
COPIES = 1000
COMPARED = 200_000

Tokens = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SortingOptions:
    """Settings of the sorts.

    Attributes:
        vocab_size, order_depth: values of the datastore that the tokens come from.
        sizes: input sizes in tokens, each measured separately. None exceeds the size of the corpus.
        threads: thread counts of Suffolk's sort.
        rounds: runs of each sort.
        repeats: size of the inputs made of repeats, in tokens; 0 for none.
        seed: chooses the random ranks at which the order is checked.
    """

    vocab_size: int
    order_depth: int
    sizes: tuple[int, ...]
    threads: tuple[int, ...]
    rounds: int
    repeats: int
    seed: int


def measure_sorting(tokens: Tokens, workdir: Path, options: SortingOptions) -> dict[str, Any]:
    """Sort prefixes of ``tokens`` (uint16, with separators); return seconds and tokens per second by input and sort.

    Raises:
        Unsupported: pydivsufsort is not installed.
        Internal: an order is wrong.
    """
    divsufsort = require_yardstick()
    results = {}
    for size in sorted({min(size, len(tokens)) for size in options.sizes}):
        results[f"{size:,} tokens"] = _measure(ended(tokens[:size]), options, options.threads, divsufsort)
    for name, repeated in _repeats(tokens, options.repeats):
        results[name] = _measure(ended(repeated), options, options.threads[-1:])
    return {"inputs": results, "segment_memory": _segment_memory(tokens, workdir, options)}


def require_yardstick() -> Callable[[bytes], object]:
    """``pydivsufsort.divsufsort``.

    Raises:
        Unsupported: the package is not installed.
    """
    try:
        divsufsort: Callable[[bytes], object] = importlib.import_module("pydivsufsort").divsufsort
    except ImportError as error:
        raise missing("pydivsufsort") from error
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
    tokens: Tokens, options: SortingOptions, threads: Sequence[int], divsufsort: Callable[[bytes], object] | None = None
) -> dict[str, Any]:
    ways: dict[str, Callable[[], Any]] = {}
    if divsufsort is not None:
        # Big-endian bytes sort like the tokens. A byte-wise sort
        # must also sort the suffixes that begin at odd byte offsets.
        ways[YARDSTICK] = partial(divsufsort, tokens.astype(">u2").tobytes())
    for count in threads:
        name = f"suffolk, {count} {'thread' if count == 1 else 'threads'}"
        ways[name] = partial(_native.sort_suffixes, tokens, options.vocab_size, options.order_depth, count)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with part_progress(options.rounds * len(ways), f"sorts of {len(tokens):,} tokens") as done:
        for number in range(options.rounds):
            for name in list(ways) if number % 2 == 0 else list(ways)[::-1]:
                begin = time.perf_counter()
                positions = ways[name]()
                seconds[name].append(time.perf_counter() - begin)
                if name != YARDSTICK and number == 0:
                    _check(tokens, np.asarray(positions), options)
                del positions
                done(sum(map(len, seconds.values())))
    rates = {name: len(tokens) / median(each) for name, each in seconds.items()}
    times = {name: rate / rates[YARDSTICK] for name, rate in rates.items() if YARDSTICK in rates and name != YARDSTICK}
    return {"tokens": len(tokens), "seconds": seconds, "tokens_per_second": rates, "times_the_yardstick": times}


def _check(tokens: Tokens, positions: Tokens, options: SortingOptions) -> None:
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
    for depth in range(options.order_depth):
        first = tokens[np.minimum(one + depth, len(tokens) - 1)]
        second = tokens[np.minimum(other + depth, len(tokens) - 1)]
        if (undecided & (first > second)).any():  # a separator is the largest value; the end sorts last
            raise Internal("the sort put suffixes in the wrong order; report this as a bug")
        undecided &= (first == second) & (first != separator(tokens.dtype))
    if (undecided & (one > other)).any():
        raise Internal("the sort put equal suffixes in the wrong order; report this as a bug")


def _repeats(tokens: Tokens, size: int) -> Iterator[tuple[str, Tokens]]:
    """Inputs that consist only of repeats. These are the worst case for a comparison sort."""
    if size:
        tokens = tokens[tokens != separator(tokens.dtype)]
        yield f"{REPEATED_FILE} ({COPIES:,} times)", np.tile(ended(tokens[: size // COPIES]), COPIES)
        yield f"{REPEATED_TOKEN} ({size:,} times)", np.full(size, tokens[0], tokens.dtype)


def ended(tokens: Tokens) -> Tokens:
    """``tokens`` with a separator as the last token."""
    copy: Tokens = tokens.copy()
    copy[-1] = separator(tokens.dtype)
    return copy


def _segment_memory(tokens: Tokens, workdir: Path, options: SortingOptions) -> dict[str, Any]:
    """Measure the peak memory of building one segment in its own process, beside the estimate of a build plan."""
    path = workdir / "tokens.npy"
    with writing(path):
        np.save(path, ended(tokens))
    settings = {
        "tokens": str(path),
        "vocab_size": options.vocab_size,
        "order_depth": options.order_depth,
        "threads": max(options.threads),
    }
    outcome: dict[str, Any] = json.loads(
        run_watched([sys.executable, "-m", segment_build.__name__, json.dumps(settings)]).output
    )
    path.unlink()
    planned = segment_bytes(len(tokens), tokens.dtype.itemsize)
    return {
        "tokens": len(tokens),
        **outcome,
        "bytes_per_token": outcome["peak_bytes"] / len(tokens),
        "planned_bytes": planned,
    }
