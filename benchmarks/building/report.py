"""Table and plot of the build measurement."""

from __future__ import annotations

from statistics import median
from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

PACKAGES = ("numpy", "tokenizers", "kitoken", "draftretriever", "pydivsufsort", "matplotlib")
HEADERS = ("", "seconds", "processor s", "text MB/s", "tokens", "peak MB", "largest process MB")
NOTES = (
    "time: wall time of the whole process, with the files already in the page cache; MB: 10^6 bytes of UTF-8 text",
    "peak memory: sum over the builder and its workers, including mapped files; a shared page counts once per process",
    "one document at a time uses one core, suffolk build uses all cores it is given; processor seconds compare the "
    "work",
    "sorting: pydivsufsort sorts the same tokens as big-endian bytes on one thread; runs alternate; times are "
    "medians; the order is checked at 200,000 random ranks",
    "the published draftretriever stores statistics of short token runs, which is less work than sorting suffixes",
)


def building_parts(results: dict[str, Any]) -> list[str | Table]:
    """The table, with facts about it."""
    rows = [
        [
            f"{name}, run {number}",
            run["seconds"],
            run["cpu_seconds"],
            run["text_bytes_per_second"] / 1e6,
            run["tokens"],
            run["peak_bytes"] / 1e6,
            run["largest_process_bytes"] / 1e6,
        ]
        for name, runs in results["runs"].items()
        for number, run in enumerate(runs, 1)
    ]
    text = next(iter(results["runs"].values()))[0]["text_bytes"]
    return [
        f"{text / 1e6:,.1f} MB of text in {results['documents']:,} documents",
        Table(HEADERS, rows),
        f"suffolk build is {results['times_faster']:.1f} times as fast (medians)",
        f"documents with equal token ids: {results['documents_with_equal_ids']:,} of {results['documents']:,} "
        f"documents",
        *_sorting_parts(results["sorting"]),
    ]


def building_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot text throughput and memory."""
    rates, peaks = results["median_text_bytes_per_second"], results["peak_bytes"]
    labels = [name.replace(", ", ",\n") for name in rates]
    panels = [
        Panel("throughput", "MB of text a second", labels, {"median": [rate / 1e6 for rate in rates.values()]}),
        Panel("peak memory", "MB resident", labels, {"peak": [peak / 1e6 for peak in peaks.values()]}),
    ]
    if sorting := results["sorting"]:
        for name, found in sorting["inputs"].items():
            ways = found["tokens_per_second"]
            rates = {"median": [rate / 1e6 for rate in ways.values()]}
            panels.append(
                Panel(f"sorting {name}", "million tokens a second", [way.replace(", ", ",\n") for way in ways], rates)
            )
    return panels


def _sorting_parts(sorting: dict[str, Any] | None) -> list[str | Table]:
    if sorting is None:
        return []
    rows = [
        [f"{name}: {way}", median(found["seconds"][way]), rate / 1e6, found["times_the_yardstick"].get(way)]
        for name, found in sorting["inputs"].items()
        for way, rate in found["tokens_per_second"].items()
    ]
    memory = sorting["segment_memory"]
    return [
        "",
        Table(("sorting", "seconds", "million tokens/s", "times pydivsufsort"), rows),
        f"a segment of {memory['tokens']:,} tokens: {memory['bytes_per_token']:.2f} bytes of memory a token at most "
        f"({memory['planned_bytes'] / memory['tokens']:.2f} planned), {memory['file_bytes'] / memory['tokens']:.3f} on disk",
    ]
