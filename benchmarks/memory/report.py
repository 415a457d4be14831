"""Table and plot of the memory measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

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


def memory_parts(results: dict[str, Any]) -> list[str | Table]:
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


def memory_panels(results: dict[str, Any]) -> list[Panel]:
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
