"""Merge the segments of a datastore into few, and take deleted documents out of its files.

Lookups and drafts read every segment, so one large segment answers sooner than many small ones.
Answers stay the same. The new segments are written beside the old ones and replace them at the very
end: Ctrl-C leaves the datastore as it was. Running servers follow within a second. Exit code 0:
compacted, or there was nothing to do.

Segments that a live datastore published are not merged, because it evicts them by their age.
Deleted documents are taken out of them too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from suffolk.build_index.compact import CompactReport, compact
from suffolk.build_index.progress import show_progress
from suffolk.build_index.report import count, megabytes
from suffolk.cli.options import setting
from suffolk.cli.store_lines import change_report
from suffolk.datastore.settings import REQUIRED, argument, option

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
    threads: int = option(0, "threads that merge; 0 is one for each core (default: 0)")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    with show_progress() as progress:
        report = compact(options.store, options.segments, options.threads, progress)
    print(change_report(asdict(report), _lines(report), options.store, report.changed, options.json))
    return 0


def _lines(report: CompactReport) -> list[str]:
    live = f", of these {report.live_segments:,} of live documents" if report.live_segments else ""
    if not report.changed:
        return [
            f"{report.store}: nothing to do: {count(report.segments, 'segment')}{live}, no deleted documents "
            f"(generation {report.generation})"
        ]
    rate = f": {report.tokens / report.seconds:,.0f} tokens/s" if report.seconds >= MEASURABLE_SECONDS else ""
    return [
        f"compacted {report.store} (generation {report.generation})",
        f"  segments   {report.segments_before:,} before, {report.segments:,} now{live}",
        f"  holds      {report.tokens:,} tokens of {count(report.documents, 'document')}",
        f"  removed    {count(report.removed_documents, 'deleted document')}, {report.removed_tokens:,} tokens",
        f"  size       {megabytes(report.bytes_before)} before, {megabytes(report.bytes)} now",
        f"  speed      {report.seconds:.1f} s{rate}",
    ]
