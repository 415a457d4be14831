"""Publish a datastore in storage: s3://, gs://, hf:// or file://.

Only segments that are missing there are sent. The new generation appears at the end: 'suffolk serve
URL' and 'suffolk pull' see the old one or the new one. The newest generations stay there ('suffolk
generations' lists them and rolls back). Segments that none of them names are removed at the end.
Ctrl-C or a lost connection leaves the old generation; run the command again to send what is still
missing.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from suffolk.build_index.progress import show_progress
from suffolk.build_index.report import count, megabytes
from suffolk.cli.options import setting
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.serving.store.live_store.identity import is_live
from suffolk.serving.store.storage.push import KEEP, PushReport, push

EXAMPLES = """
suffolk push STORE s3://bucket/code
suffolk push STORE s3://bucket/code --keep 7      the newest seven generations stay there
suffolk push STORE gs://bucket/code               with the package gcsfs
suffolk push STORE file:///mnt/share/code         a shared disk
AWS_ENDPOINT_URL=http://127.0.0.1:9000 suffolk push STORE s3://bucket/code      another S3 server"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    url: str = argument(REQUIRED, "its place in storage", metavar="URL")
    keep: Annotated[int, Within(1, 1000)] = option(KEEP, "newest generations that stay at the URL")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    try:
        with show_progress() as progress:
            report = push(options.store, options.url, options.keep, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"before the end; readers of {options.url} see no unfinished generation; run the command again to continue"
        ) from None
    print(json.dumps(asdict(report)) if options.json else "\n".join(push_lines(report)))
    if is_live(options.store):
        print(
            f"suffolk: {options.store} is live: only published documents were pushed. suffolk.open(URL).flush() publishes the "
            "others, except documents of groups",
            file=sys.stderr,
        )
    return 0


def push_lines(report: PushReport) -> list[str]:
    """The outcome of a push as lines of text."""
    if not report.published and not report.sent_files:
        return [f"{report.url}: nothing to do: generation {report.generation} is this datastore"]
    verb = "pushed" if report.published else "repaired"
    return [f"{verb} {report.store} to {report.url} (generation {report.generation})", *push_facts(report)]


def push_facts(report: PushReport) -> list[str]:
    """What the place in storage holds now, and what was sent and removed, as lines of text."""
    time = f", in {report.seconds:.1f} s" if report.seconds else ", while they were made"
    rate = f": {report.sent_bytes / report.seconds / 1e6:.1f} MB/s" if report.sent_bytes and report.seconds else ""
    return [
        f"  holds      {count(report.segments, 'segment')}, {megabytes(report.bytes)}",
        f"  sent       {count(report.sent_files, 'segment')}, {megabytes(report.sent_bytes)}{time}{rate}",
        f"  removed    {count(report.removed_files, 'old segment')}",
    ]
