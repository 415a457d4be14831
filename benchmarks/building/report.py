"""Table and plot of the build measurement."""

from __future__ import annotations

from statistics import median
from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.table import format_table

PACKAGES = ("numpy", "tokenizers", "kitoken", "draftretriever", "pydivsufsort", "matplotlib")
HEADERS = ("", "seconds", "processor s", "text MB/s", "tokens", "peak MB", "largest process MB")
NOTES = (
    "time is wall time of the whole process, start to end, of files already in the system's cache; MB are 10^6 bytes of UTF-8 text",
    "peak memory adds up the builder and its workers, pages of mapped files included; pages that they share count for each",
    "one document at a time uses one core by its nature, suffolk build all that it is given; processor seconds compare the work",
    "sorting: pydivsufsort gets the same tokens as big-endian bytes and sorts them on one thread; all in turn, medians; "
    "the order is checked at 200,000 random ranks",
    "the published draftretriever writes short-run statistics, which is less work than sorting suffixes",
)


def building_lines(results: dict[str, Any]) -> list[str]:
    """The table."""
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
        format_table(HEADERS, rows),
        f"suffolk build is {results['times_faster']:.1f} times as fast (medians)",
        f"equal token ids: {results['documents_with_equal_ids']:,} of {results['documents']:,} documents",
        *_sorting_lines(results["sorting"]),
        *(f"note: {note}" for note in NOTES),
    ]


def building_panels(results: dict[str, Any]) -> list[Panel]:
    """Text throughput and memory."""
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


def _sorting_lines(sorting: dict[str, Any] | None) -> list[str]:
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
        format_table(("sorting", "seconds", "million tokens/s", "times pydivsufsort"), rows),
        f"a segment of {memory['tokens']:,} tokens: {memory['bytes_per_token']:.2f} bytes of memory a token at most "
        f"({memory['planned_bytes'] / memory['tokens']:.2f} planned), {memory['file_bytes'] / memory['tokens']:.3f} on disk",
    ]
