"""Colours of text by the source of its tokens, and the table of sources, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from suffolk.serving.decoding.drafters.registry import source_name

COLOURS = (32, 208, 130, 145, 126, 132, 179, 38, 65, 93)
"""Colours of the 256-colour palette, by source id: datastore, prompt-lookup, draft-model, early-exit, redrafter, eagle, hierarchy,
token-recycling, prediction, parallel-samples. Colour-blind readers can tell them apart, on dark and on light terminals. Sources
with higher ids are plugins. They have the same colours in italics, in bold, or both."""
STAGES = ("proposed", "verified", "accepted")
CAPTION = "A node of several sources counts for each of them, and once for all drafts."


@dataclass(frozen=True, slots=True)
class Colours:
    """Which outputs are coloured: the text on stdout, and the report on stderr."""

    text: bool
    report: bool

    @classmethod
    def choose(cls, choice: str) -> Colours:
        """``choice``: always, never, or auto: each on a terminal with colours, unless NO_COLOR is set."""
        if choice != "auto":
            return cls(choice == "always", choice == "always")
        text, report = (Console(file=stream) for stream in (sys.stdout, sys.stderr))
        return cls(*(each.color_system is not None and not each.no_color for each in (text, report)))


def paint(text: str, bits: int) -> str:
    """``text`` in the colour of its source. Text that several sources drafted is underlined, in the colour of the first of them.

    ``bits``: its sources (``DraftTree.sources``); 0, the target's own text, has no colour.
    """
    return source_style(bits).render(text, color_system=ColorSystem.EIGHT_BIT) if bits else text


def source_style(bits: int) -> Style:
    """The style of text with these source bits, one or more."""
    first = (bits & -bits).bit_length() - 1
    cycle, place = divmod(first, len(COLOURS))
    return Style(
        color=Color.from_ansi(COLOURS[place]),
        italic=bool(cycle & 1) or None,
        bold=bool(cycle & 2) or None,
        underline=(bits & (bits - 1) != 0) or None,
    )


def legend(sources: Iterable[int]) -> str:
    """Name the colours of a text whose parts have these source bits."""
    names = [paint(source_name(bits), bits) for bits in sorted({*sources} - {0})]
    return f"colours   {', '.join(names) or 'none: no drafted token was accepted'}; without colour: the target's own tokens"


def print_sources(report: dict[str, Any], coloured: bool) -> None:
    """Print to stderr a row for each source of the generation ``report``, one for all drafts, and one for the target."""
    system: Literal["256"] | None = "256" if coloured else None
    Console(stderr=True, color_system=system, force_terminal=coloured).print(source_table(report))


def source_table(report: dict[str, Any]) -> Table:
    """The table of sources. A node that several sources proposed counts for each source, and once in the row of all drafts."""
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
