"""Counts token sequences with Suffolk and infini-gram on the same tokens, and compares counts, time and bytes."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.datastore_options import CountingOptions
from suffolk.benchmarks.folder import built_once, first_tokens, make_folder, writing
from suffolk.benchmarks.parts import time_rounds
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.processes import run_watched
from suffolk.benchmarks.report import import_optional, quantiles_us
from suffolk.benchmarks.retrieval.contexts import join_documents, sample_seen, spoil
from suffolk.build_index.progress import tracked
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import Internal, Unsupported
from suffolk.datastore.segment import separator, token_dtype
from suffolk.datastore.text_table import Table

OURS, RIVAL = "suffolk", "infini-gram"
ENGINE = "infini_gram.engine"
PACKAGES = ("numpy", "infini-gram", "matplotlib")
HEADERS = ("tokens in a sequence", "suffolk p50 us", "p99", "infini-gram p50 us", "p99", "times as fast", "in turn")
NOTES = (
    "half of the sequences are windows of the corpus, half have one token replaced; each is one call from Python, "
    "with warm caches",
    "times as fast: ratio of the p50 times, with all queries of one index before all of the other; in turn: the same "
    "ratio, query by query, so that neither index finds its data in the processor's caches",
    "infini-gram's index is built by its own command from tokens on disk; Suffolk's by suffolk build from text",
)


def measure_counting(options: CountingOptions) -> dict[str, Any]:
    """Count sequences that occur, and sequences with one token replaced, in both indexes. Return the results by name.

    Raises:
        NotFound, Corruption: the datastore is missing or damaged.
        Unsupported: infini-gram is not installed, or cannot hold the tokens.
        Internal: two counts differ.
    """
    package = import_optional(ENGINE, RIVAL)
    path = options.store
    if options.tokens is not None:
        with open_datastore(path) as whole:
            path = first_tokens(whole, options.tokens, options.workdir)
    with open_datastore(path) as store:
        tokens, starts = join_documents(store)
        folder, built = cached_index(store, options.workdir / path.name)
        engine = package.InfiniGramEngine(index_dir=str(folder), eos_token_id=0, token_dtype="u16")
        facts = store.info()
        calls: dict[str, Callable[[Sequence[int]], int]] = {
            OURS: lambda ids: store.lookup(ids, len(ids), len(ids)).count,
            RIVAL: lambda ids: int(engine.count(input_ids=ids)["count"]),
        }

        def measured(length: int) -> tuple[str, dict[str, Any]]:
            seen = sample_seen(tokens, starts, options.queries, max(2, length), 0, options.seed)
            spoilt = spoil(seen, store.manifest.vocab_size, options.seed + 1)
            sequences = [ids[-length:] for ids in (*seen.contexts, *spoilt.contexts)]
            return str(length), _measure(calls, sequences, options)

        lengths = dict(tracked(map(measured, options.lengths), len(options.lengths), "lengths"))
    return {
        "datastore": {name: facts[name] for name in ("path", "tokens", "documents", "bytes", "bytes_per_token")},
        "infini_gram_index": {**built, "bytes_per_token": built["bytes"] / facts["tokens"]},
        "lengths": lengths,
    }


def _measure(
    calls: dict[str, Callable[[Sequence[int]], int]], sequences: list[list[int]], options: CountingOptions
) -> dict[str, Any]:
    for ids in sequences:
        ours, theirs = (call(ids) for call in calls.values())
        if ours != theirs:
            raise Internal(
                f"{ids} occurs {ours} times by Suffolk's count and {theirs} times by infini-gram's; report this as a bug"
            )
    grouped = time_rounds(calls, sequences, options.rounds, options.seed)
    mixed = time_rounds(calls, sequences, options.rounds, options.seed, alternating=True)
    results: dict[str, Any] = {"sequences": len(sequences), "counts_equal": True}
    for name, times in (("latency", grouped), ("alternating", mixed)):
        results[name] = {way: quantiles_us(seconds) for way, seconds in times.items()}
    results["times_faster_at_p50"] = _ratio(results["latency"])
    results["times_faster_at_p50_alternating"] = _ratio(results["alternating"])
    return results


def _ratio(latency: dict[str, dict[str, float]]) -> float:
    return latency[RIVAL]["p50_us"] / latency[OURS]["p50_us"]


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table, with facts about it."""
    facts, built = results["datastore"], results["infini_gram_index"]
    rows = [
        [
            length,
            *(found["latency"][way][quantile] for way in (OURS, RIVAL) for quantile in ("p50_us", "p99_us")),
            found["times_faster_at_p50"],
            found["times_faster_at_p50_alternating"],
        ]
        for length, found in results["lengths"].items()
    ]
    sequences = sum(found["sequences"] for found in results["lengths"].values())
    again = " (by an earlier run)" if built["reused"] else ""
    return [
        f"{facts['path']}: {facts['tokens']:,} tokens, {facts['bytes_per_token']:.3f} bytes a token; "
        f"infini-gram: {built['bytes_per_token']:.3f} bytes a token",
        f"infini-gram's index took {built['seconds']:.1f} s, {built['cpu_seconds']:.1f} processor s and "
        f"{built['peak_bytes'] / 1e6:,.0f} MB at most{again}",
        Table(HEADERS, rows),
        f"counts of {sequences:,} sequences: all equal",
    ]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot latency by sequence length, and index size."""
    lengths = results["lengths"]
    series = {way: [found["latency"][way]["p50_us"] for found in lengths.values()] for way in (OURS, RIVAL)}
    sizes = [results["datastore"]["bytes_per_token"], results["infini_gram_index"]["bytes_per_token"]]
    return [
        Panel("count, p50", "microseconds a call", list(lengths), series, logarithmic=True),
        Panel("index", "bytes a token", [OURS, RIVAL], {"size": sizes}),
    ]


MEMORY_GIB = 8
LEAST_PART = 10_000_000


def cached_index(store: Datastore, workdir: Path) -> tuple[Path, dict[str, Any]]:
    """Return the index over ``store`` in ``workdir``, and the cost of building it.

    An index of the same generation is reused.

    Raises:
        Unsupported: the datastore's tokens are wider than 2 bytes.
        Internal: the package failed to build it.
        ResourceExhausted: the folder cannot be written.
    """
    if token_dtype(store.manifest.vocab_size) != np.uint16:
        raise Unsupported(
            f"{store.path} stores ids in 4 bytes; infini-gram takes 2, so use a datastore of at most 65,535 ids"
        )
    folder = workdir / "infini-gram"
    return folder, built_once(folder, folder / "facts.json", store, partial(_build_index, store, folder))


def _build_index(store: Datastore, folder: Path) -> dict[str, Any]:
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
        _write_tokens(store, make_folder(folder).absolute())
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = [sys.executable, "-m", "infini_gram.indexing", "--token_dtype", "u16"]
    command += ["--data_dir", str(folder.absolute()), "--save_dir", str(folder.absolute())]
    command += ["--mem", str(MEMORY_GIB), "--cpus", str(_parts(folder)), "--ulimit", str(most_files)]
    watched = run_watched(command)
    return {
        "seconds": watched.seconds,
        "cpu_seconds": watched.cpu_seconds,
        "peak_bytes": watched.peak_bytes,
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def _parts(folder: Path) -> int:
    """Number of parts into which the package cuts the tokens.

    Parts overlap by 100,000 bytes. If a part is smaller than the overlap, the package counts some occurrences twice.
    """
    return min(os.cpu_count() or 1, 1 + (folder / "tokenized.0").stat().st_size // LEAST_PART)


def _write_tokens(store: Datastore, folder: Path) -> None:
    """Write tokens and document offsets in the package's format: a separator before each document."""
    dtype = token_dtype(store.manifest.vocab_size)
    mark = np.array([separator(dtype)], dtype).tobytes()
    offsets, place = [], 0
    with open(folder / "tokenized.0", "wb") as file:
        for document in store.documents():
            content = mark + document.tokens.astype(dtype).tobytes()
            file.write(content)
            offsets.append(place)
            place += len(content)
    np.array(offsets, np.uint64).tofile(folder / "offset.0")
