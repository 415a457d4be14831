"""Merge the segments of a datastore into few, and take deleted documents out of its files.

Lookups and drafts read every segment, so one large segment answers sooner than many small ones.
Answers stay the same. The new segments are written beside the old ones and replace them at the very
end: Ctrl-C leaves the datastore as it was. Exit code 0: compacted, or there was nothing to do.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from suffolk.build_index.compact import CompactReport, compact
from suffolk.build_index.progress import PLAIN_SECONDS
from suffolk.build_index.report import count, megabytes
from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option

EXAMPLES = """
suffolk compact STORE                  into as few segments as possible
suffolk compact STORE --segments 4     into four, neighbours together, the smallest first
suffolk compact STORE --threads 2"""
MEASURABLE_SECONDS = 0.05
"""A rate over less time is noise."""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    segments: int = option(1, "segments to keep at most")
    threads: int = option(0, "for merging; 0: every core (default: 0)")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    """Compact; returns the exit code."""
    report = compact(options.store, options.segments, options.threads, _Progress().show)
    print(json.dumps(report.to_dict()) if options.json else "\n".join(_lines(report)))
    return 0


class _Progress:
    """Rate and time left: a moving line on a terminal, a line every half minute anywhere else."""

    def __init__(self) -> None:
        self._step = ""
        self._began = self._shown = time.monotonic()

    def show(self, step: str, share: float, tokens: int) -> None:
        now = time.monotonic()
        if step != self._step:
            self._step, self._began, self._shown = step, now, now
        terminal = sys.stderr.isatty()
        if share <= 0 or (share < 1 and now - self._shown < (0.2 if terminal else PLAIN_SECONDS)):
            return
        self._shown = now
        seconds = now - self._began
        line = f"{step} {share:4.0%} of {tokens:,} tokens"
        if seconds >= MEASURABLE_SECONDS:
            line += f", {share * tokens / seconds:,.0f} tokens/s, about {seconds * (1 - share) / share:,.0f} s left"
        print(
            f"\r{line:<100}" if terminal else line,
            end="" if terminal and share < 1 else "\n",
            file=sys.stderr,
            flush=True,
        )


def _lines(report: CompactReport) -> list[str]:
    if not report.changed:
        return [
            f"{report.store}: nothing to do: {count(report.segments, 'segment')}, no deleted documents "
            f"(generation {report.generation})"
        ]
    rate = f": {report.tokens / report.seconds:,.0f} tokens/s" if report.seconds >= MEASURABLE_SECONDS else ""
    return [
        f"compacted {report.store} (generation {report.generation})",
        f"  segments   {report.segments_before:,} before, {report.segments:,} now",
        f"  holds      {report.tokens:,} tokens of {count(report.documents, 'document')}",
        f"  removed    {count(report.removed_documents, 'deleted document')}, {report.removed_tokens:,} tokens",
        f"  size       {megabytes(report.bytes_before)} before, {megabytes(report.bytes)} now",
        f"  speed      {report.seconds:.1f} s{rate}",
    ]
