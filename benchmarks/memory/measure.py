"""Measures a datastore's latency, and checks its answers, when all, half or a fifth of it fits into memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.datastore_options import MemoryOptions
from suffolk.benchmarks.folder import make_folder
from suffolk.benchmarks.memory.limited_process import ask
from suffolk.benchmarks.memory.page_cache import random_read_seconds
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.processes import helper_command, run_watched
from suffolk.benchmarks.report import quantiles_us
from suffolk.build_index.progress import tracked
from suffolk.datastore import _native
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.datastore.files import write_json
from suffolk.datastore.manifest import SEGMENTS_NAME
from suffolk.datastore.text_table import Table

DISK_READS = 2000
MAX_MATCH, MIN_MATCH = 16, 2
PACKAGES = ("numpy", "matplotlib")
HEADERS = (
    "limit, residency",
    "open ms",
    "cold lookup p50",
    "p99",
    "cold both p50",
    "p99",
    "faults",
    "then both p50",
    "p99",
    "faults",
    "MB in memory",
)
NOTES = (
    "times: microseconds of a lookup, or of a lookup and a draft, from Python on one thread; faults: major page "
    "faults (disk reads) a call; cold: first query of every context, after the files were dropped from memory; then: "
    "the same queries again",
    "under a limit, random runs of pages are given back to the system between calls until the files fit; a real "
    "system would keep the most used pages. To measure the system's own choice, use a memory cgroup and --limits 1, "
    "for example: "
    "systemd-run --scope -p MemoryMax=2G suffolk bench memory STORE --limits 1",
    "the disk of a virtual machine may be cached in its host's memory",
)


def measure_memory(options: MemoryOptions) -> dict[str, Any]:
    """Run a process for each limit and policy; return the results by name.

    Raises:
        NotFound, Corruption: the datastore is missing or damaged.
        Internal: the answers of two processes differ, or a process failed.
    """
    with open_datastore(options.store) as store:
        facts = store.info()
        if not facts["tokens"]:
            raise InvalidArgument(f"{store.path} holds no tokens, so there is nothing to measure")
        contexts = random_windows(store, options.queries, options.context, options.seed)
    file = make_folder(options.workdir) / "contexts.json"
    write_json(file, contexts)
    first = options.store / SEGMENTS_NAME / facts["segments"][0]["name"]
    ways = [(limit, residency) for limit in options.limits for residency in options.residencies]
    runs = list(tracked((_run(options, file, facts["bytes"], *way) for way in ways), len(ways), "limits and policies"))
    digests = {run[name] for run in runs for name in ("digest", "digest_again")}
    if len(digests) != 1:
        raise Internal("answers differ between memory limits; run 'suffolk verify' and report this as a bug")
    return {
        "datastore": {name: facts[name] for name in ("path", "tokens", "documents", "bytes", "bytes_per_token")},
        "segments": len(facts["segments"]),
        "disk_read_4k": quantiles_us(random_read_seconds(first, DISK_READS, options.seed)),
        "runs": runs,
        "answers_equal": True,
    }


def _run(options: MemoryOptions, contexts: Path, size: int, limit: float, residency: str) -> dict[str, Any]:
    settings = {
        "store": str(options.store),
        "residency": residency,
        "limit_bytes": None if limit >= 1 else int(limit * size),
        "contexts": str(contexts),
        "rounds": options.rounds,
        "max_match": MAX_MATCH,
        "min_match": MIN_MATCH,
        "max_nodes": options.max_nodes,
        "seed": options.seed,
    }
    watched = run_watched(helper_command(ask, settings=settings))
    return {"limit": limit, "residency": residency, **json.loads(watched.output)}


def random_windows(store: Datastore, count: int, length: int, seed: int) -> list[list[int]]:
    """Return windows of at most ``length`` tokens that end at random tokens of the documents, read one by one."""
    chooser = np.random.default_rng(seed)
    entries = store.manifest.segments
    segments = [_native.Segment(str(store.path / SEGMENTS_NAME / entry.name)) for entry in entries]
    sizes = [entry.tokens + entry.documents for entry in entries]
    windows = []
    for number in chooser.choice(len(segments), count, p=np.array(sizes) / sum(sizes)).tolist():
        position = int(chooser.integers(sizes[number]))
        begin, _ = segments[number].document_range(segments[number].document_at(position))
        start = max(begin, position - length)
        windows.append(segments[number].read_tokens(start, position - start).tolist())
    return windows


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table, with facts about it."""
    facts, disk = results["datastore"], results["disk_read_4k"]
    rows = [
        [
            _name(run),
            run["open_s"] * 1e3,
            run["cold"]["lookup"]["p50_us"],
            run["cold"]["lookup"]["p99_us"],
            run["cold"]["p50_us"],
            run["cold"]["p99_us"],
            run["cold"]["major_faults_per_call"],
            run["steady"]["p50_us"],
            run["steady"]["p99_us"],
            run["steady"]["major_faults_per_call"],
            (run["resident_bytes"] or 0) / 1e6,
        ]
        for run in results["runs"]
    ]
    reads = f"p50 {disk['p50_us']:.0f} us, p99 {disk['p99_us']:.0f} us" if disk["calls"] else "unknown"
    return [
        f"{facts['path']}: {facts['tokens']:,} tokens in {results['segments']} segments, {facts['bytes'] / 1e6:,.0f} MB",
        f"disk read of 4 KiB at a random place: {reads}",
        Table(HEADERS, rows),
        f"equal answers in all {len(rows)} processes",
    ]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot latency at each limit, cold and steady."""
    runs = results["runs"]
    return [
        Panel(
            f"{phase} calls",
            "microseconds a lookup and draft",
            [_name(run).replace(", ", ",\n") for run in runs],
            {name: [run[phase][f"{name}_us"] for run in runs] for name in ("p50", "p99")},
            logarithmic=True,
        )
        for phase in ("cold", "steady")
    ]


def _name(run: dict[str, Any]) -> str:
    return f"{run['limit']:.0%}, {run['residency']}"
