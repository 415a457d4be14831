"""Table and plot of the memory measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.table import format_table

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
    "times are microseconds of a lookup, or of a lookup and a draft, from Python on one thread; "
    "faults are major page faults a call: reads of "
    "the disk. cold: every context for the first time, after the files were dropped from memory; then: asked again",
    "under a limit, random runs of pages are given back to the system between calls until the files are below it; the system "
    "would keep the pages used most. To see its own choice run this in a memory cgroup with --limits 1, for example: "
    "systemd-run --scope -p MemoryMax=2G suffolk bench memory STORE --limits 1",
    "a virtual machine's disk may answer from its host's memory",
)


def memory_lines(results: dict[str, Any]) -> list[str]:
    """The table."""
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
        f"the disk reads 4 KiB at a random place in: {reads}",
        format_table(HEADERS, rows),
        f"equal answers in all {len(rows)} processes",
        *(f"note: {note}" for note in NOTES),
    ]


def memory_panels(results: dict[str, Any]) -> list[Panel]:
    """Latency at each limit, cold and steady."""
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
