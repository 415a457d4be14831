"""Table and plot of the counting measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.counts.measure import OURS, RIVAL
from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

PACKAGES = ("numpy", "infini-gram", "matplotlib")
HEADERS = ("tokens in a sequence", "suffolk p50 us", "p99", "infini-gram p50 us", "p99", "times as fast", "in turn")
NOTES = (
    "half of the sequences are windows of the corpus, half have one token replaced; each is one call from Python, "
    "with warm caches",
    "times as fast: ratio of the p50 times, with all queries of one index before those of the other; in turn: the same "
    "ratio, query by query, so that neither index finds its data in the processor's caches",
    "infini-gram's index is built by its own command from tokens on disk; Suffolk's by suffolk build from text",
)


def counting_parts(results: dict[str, Any]) -> list[str | Table]:
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


def counting_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot latency by sequence length, and index size."""
    lengths = results["lengths"]
    series = {way: [found["latency"][way]["p50_us"] for found in lengths.values()] for way in (OURS, RIVAL)}
    sizes = [results["datastore"]["bytes_per_token"], results["infini_gram_index"]["bytes_per_token"]]
    return [
        Panel("count, p50", "microseconds a call", list(lengths), series, logarithmic=True),
        Panel("index", "bytes a token", [OURS, RIVAL], {"size": sizes}),
    ]
