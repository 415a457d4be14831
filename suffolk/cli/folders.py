"""Datastores in folders: copied, split and compacted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from suffolk.build_index.compact import CompactReport, compact
from suffolk.build_index.progress import show_progress
from suffolk.build_index.report import count, megabytes
from suffolk.build_index.split import split
from suffolk.cli.options.setting import Options
from suffolk.cli.store_lines import change_report
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.serving.store.live_store.snapshot import LOCK_SECONDS, snapshot

MEASURABLE_SECONDS = 0.05
"""A rate over less time is noise."""


@dataclass(frozen=True, kw_only=True)
class Snapshot(Options):
    """Copy a datastore while it is served and appended to.

    The copy holds the published generation, and every append that was acknowledged before the command began.
    It appears at the end, whole and on disk. To restore it, serve the copy, or move it to the old place while
    no process uses that. 'suffolk verify' checks it. Exit code 0: copied.
    """

    EXAMPLES = """
suffolk snapshot STORE /backup/store-monday       a full copy
suffolk snapshot STORE STORE.copy --link          at once, on the same disk: segment files are shared
suffolk serve /backup/store-monday                restore: serve the copy"""

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    output: Path = argument(REQUIRED, "a new folder for the copy", metavar="OUT")
    link: bool = option(False, "link segment files instead of copying them; OUT must be on the same file system")
    wait: Annotated[float, Within(0)] = option(
        LOCK_SECONDS, "seconds to wait while another process publishes", metavar="SECONDS"
    )
    json: bool = option(False, "print one JSON object")

    def run(self) -> int:
        report = snapshot(self.store, self.output, self.link, self.wait)
        if self.json:
            print(json.dumps(asdict(report)))
        else:
            print(
                f"copied {report.store} (generation {report.generation}) to {report.output}: {count(report.files, 'file')}, "
                f"{megabytes(report.bytes)}, of these {megabytes(report.log_bytes)} not published yet, {report.seconds:.1f} s"
            )
        return 0


@dataclass(frozen=True, kw_only=True)
class Split(Options):
    """Split a datastore into shards for several servers.

    OUT/shard-0, OUT/shard-1, ... are datastores with some of its segments each. Segment files are linked, so OUT must be on
    the same file system, and it takes no space. Serve each shard under one name; the address
    grpc://HOST:PORT+HOST:PORT/NAME then answers as the whole datastore.
    """

    EXAMPLES = """
suffolk split STORE shards/ --shards 2
suffolk serve code=shards/shard-0                 on the first machine
suffolk serve code=shards/shard-1                 on the second machine"""

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    output: Path = argument(REQUIRED, "a new folder for the shards", metavar="OUT")
    shards: int = option(2, "number of shards; the datastore needs as many segments")
    json: bool = option(False, "print one JSON object")

    def run(self) -> int:
        reports = split(self.store, self.output, self.shards)
        if self.json:
            print(json.dumps({"shards": [asdict(report) for report in reports]}))
            return 0
        for report in reports:
            print(
                f"{report.path}: {count(report.segments, 'segment')}, {count(report.documents, 'document')}, "
                f"{count(report.tokens, 'token')}, {megabytes(report.bytes)}"
            )
        return 0


@dataclass(frozen=True, kw_only=True)
class Compact(Options):
    """Merge the segments of a datastore into few, and take deleted documents out of its files.

    Lookups and drafts read every segment, so one large segment answers sooner than many small ones.
    Answers stay the same. The new segments are written beside the old ones and replace them at the very
    end: Ctrl-C leaves the datastore as it was. Running servers follow within a second. Exit code 0:
    compacted, or there was nothing to do.

    Segments that a live datastore published are not merged, because it evicts them by their age.
    Deleted documents are taken out of them too.
    """

    EXAMPLES = """
suffolk compact STORE                  into as few segments as possible
suffolk compact STORE --segments 4     into four, neighbours together, the smallest first
suffolk compact STORE --threads 2"""

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    segments: int = option(1, "segments to keep at most")
    threads: int = option(0, "threads that merge; 0 is one for each core (default: 0)")
    json: bool = option(False, "print one JSON object")

    def run(self) -> int:
        with show_progress() as progress:
            report = compact(self.store, self.segments, self.threads, progress)
        print(change_report(asdict(report), _compact_lines(report), self.store, report.changed, self.json))
        return 0


COMMANDS = {"snapshot": Snapshot, "split": Split, "compact": Compact}


def _compact_lines(report: CompactReport) -> list[str]:
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
