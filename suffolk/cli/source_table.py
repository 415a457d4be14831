"""The table of ``--explain``: what each source contributed."""

from __future__ import annotations

from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from suffolk.cli.source_colours import source_style
from suffolk.serving.decoding.drafters.registry import source_name

STAGES = ("proposed", "verified", "accepted")
CAPTION = "A node of several sources counts for each of them, and once for all drafts."


def print_sources(report: dict[str, Any], coloured: bool) -> None:
    """Print to stderr a row for each source of the generation ``report``, one for all drafts, and one for the target."""
    system: Literal["256"] | None = "256" if coloured else None
    Console(stderr=True, color_system=system, force_terminal=coloured).print(source_table(report))


def source_table(report: dict[str, Any]) -> Table:
    """The table. A node that several sources proposed counts for each of them, and once in the row of all drafts."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=CAPTION, caption_style="", caption_justify="left")
    table.add_column("nodes by source", overflow="fold")
    for name in (*STAGES, "acceptance", "share of text"):
        table.add_column(name, justify="right")
    counts = {stage: {int(bits): n for bits, n in report[f"{stage}_by_source"].items()} for stage in STAGES}
    seen = 0
    for bits in counts["proposed"]:
        seen |= bits
    for mark in (1 << place for place in range(seen.bit_length())):
        if mark & seen:
            own = [sum(n for bits, n in counts[stage].items() if bits & mark) for stage in STAGES]
            table.add_row(Text(source_name(mark), source_style(mark)), *_cells(own, report["tokens"]))
    every = [sum(counts[stage].values()) for stage in STAGES]
    table.add_row("all drafts", *_cells(every, report["tokens"]))
    table.add_row("target", "", "", "", "", _share(report["tokens"] - every[-1], report["tokens"]))
    return table


def _cells(counts: list[int], tokens: int) -> list[str]:
    proposed, verified, accepted = counts
    return [f"{proposed:,}", f"{verified:,}", f"{accepted:,}", _share(accepted, verified), _share(accepted, tokens)]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "-"
