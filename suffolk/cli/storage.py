"""Datastores in storage: published, fetched, listed and rolled back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.build_index.progress import show_progress
from suffolk.build_index.report import count, megabytes
from suffolk.cli.options.setting import Options
from suffolk.cli.store_lines import change_report
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.serving.store.live_store.identity import is_live
from suffolk.serving.store.storage.generations import list_generations, roll_back
from suffolk.serving.store.storage.pull import PullReport, pull
from suffolk.serving.store.storage.push import KEEP, PushReport, push


@dataclass(frozen=True, kw_only=True)
class Push(Options):
    """Publish a datastore in storage: s3://, gs://, hf:// or file://.

    Only segments that are missing there are sent. The new generation appears at the end: 'suffolk serve
    URL' and 'suffolk pull' see the old one or the new one. The newest generations stay there ('suffolk
    generations' lists them and rolls back). Segments that none of them names are removed at the end.
    Ctrl-C or a lost connection leaves the old generation; run the command again to send what is still
    missing.
    """

    EXAMPLES = """
suffolk push STORE s3://bucket/code
suffolk push STORE s3://bucket/code --keep 7      the newest seven generations stay there
suffolk push STORE gs://bucket/code               with the package gcsfs
suffolk push STORE file:///mnt/share/code         a shared disk
AWS_ENDPOINT_URL=http://127.0.0.1:9000 suffolk push STORE s3://bucket/code      another S3 server"""

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    url: str = argument(REQUIRED, "its place in storage", metavar="URL")
    keep: Annotated[int, Within(1, 1000)] = option(KEEP, "number of newest generations that stay at the URL")
    json: bool = option(False, "print one JSON object")

    def run(self) -> None:
        with _resumable(self.url), show_progress() as progress:
            report = push(self.store, self.url, self.keep, progress)
        print(json.dumps(asdict(report)) if self.json else "\n".join(push_lines(report)))
        if is_live(self.store):
            print(
                f"suffolk: {self.store} is live: only published documents were pushed. suffolk.open(URL).flush() publishes the "
                "others, except documents of groups",
                file=sys.stderr,
            )


@dataclass(frozen=True, kw_only=True)
class Pull(Options):
    """Copy a datastore from storage to a folder: s3://, gs://, hf:// or file://.

    Only segments that the folder lacks are fetched. The folder changes to the new generation at the end,
    and running servers of it follow within a second. Ctrl-C or a lost connection leaves the folder as it
    was; run the command again to go on. A folder that holds anything else than an unchanged copy of URL
    is refused.
    """

    EXAMPLES = """
suffolk pull s3://bucket/code code/
suffolk pull s3://bucket/code code/ --generation 11    an older one; 'suffolk generations' lists them
suffolk serve s3://bucket/code --cache /var/cache/suffolk      without a pull: serve follows the URL"""

    url: str = argument(REQUIRED, "a datastore's place in storage", metavar="URL")
    store: Path = argument(REQUIRED, "folder of the copy", metavar="DIR")
    generation: int | None = option(None, "number of the generation (default: the newest)")
    replace: bool = option(False, "replace a datastore in DIR that is no unchanged copy of URL")
    json: bool = option(False, "print one JSON object")

    def run(self) -> None:
        with _resumable(self.store), show_progress() as progress:
            report = pull(self.url, self.store, self.generation, self.replace, progress)
        print(change_report(asdict(report), _pull_lines(report), self.store, report.changed, self.json))


@dataclass(frozen=True, kw_only=True)
class Generations(Options):
    """List the generations of a datastore in storage, the newest last, or roll back to one of them.

    A rollback publishes the content of an old generation again, under a new number. Servers that follow
    the URL change to it.
    """

    EXAMPLES = """
suffolk generations s3://bucket/code
suffolk generations s3://bucket/code --rollback 11"""

    url: str = argument(REQUIRED, "a datastore's place in storage", metavar="URL")
    rollback: int | None = option(None, "number of the generation to publish again")
    json: bool = option(False, "print one JSON list")

    def run(self) -> None:
        if self.rollback is not None:
            roll_back(self.url, self.rollback)
        facts = list(map(_generations_facts, list_generations(self.url)))
        if self.json:
            print(json.dumps(facts))
            return
        for row in facts:
            print(
                f"{row['generation']:>6}  {row['created']}  {row['tokens']:,} tokens of {count(row['documents'], 'document')}, "
                f"{count(row['segments'], 'segment')}, {megabytes(row['bytes'])}"
            )


COMMANDS = {"push": Push, "pull": Pull, "generations": Generations}


@contextmanager
def _resumable(place: object) -> Iterator[None]:
    """Add to Ctrl-C that ``place`` is unchanged, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"before the end; readers of {place} see no unfinished generation; run the command again to continue"
        ) from None


def push_lines(report: PushReport) -> list[str]:
    """The outcome of a push as lines of text."""
    if not report.published and not report.sent_files:
        return [f"{report.url}: nothing to do: generation {report.generation} is this datastore"]
    verb = "pushed" if report.published else "repaired"
    return [f"{verb} {report.store} to {report.url} (generation {report.generation})", *push_facts(report)]


def push_facts(report: PushReport) -> list[str]:
    """Format the contents of the place in storage, and the sent and removed files, as lines of text."""
    time = f", in {report.seconds:.1f} s" if report.seconds else ", while they were made"
    rate = f": {report.sent_bytes / report.seconds / 1e6:.1f} MB/s" if report.sent_bytes and report.seconds else ""
    return [
        f"  holds      {count(report.segments, 'segment')}, {megabytes(report.bytes)}",
        f"  sent       {count(report.sent_files, 'segment')}, {megabytes(report.sent_bytes)}{time}{rate}",
        f"  removed    {count(report.removed_files, 'old segment')}",
    ]


def _pull_lines(report: PullReport) -> list[str]:
    if not report.changed:
        return [f"{report.store}: nothing to do: it is generation {report.generation} of {report.url}"]
    rate = f": {report.fetched_bytes / report.seconds / 1e6:.1f} MB/s" if report.fetched_bytes else ""
    return [
        f"pulled {report.url} to {report.store} (generation {report.generation})",
        f"  holds      {count(report.segments, 'segment')}, {megabytes(report.bytes)}",
        f"  fetched    {count(report.fetched_files, 'segment')}, {megabytes(report.fetched_bytes)}, "
        f"in {report.seconds:.1f} s{rate}",
    ]


def _generations_facts(manifest: Manifest) -> dict[str, Any]:
    sizes = {
        name: sum(getattr(entry, name) for entry in manifest.segments)
        - sum(getattr(entry, name) for entry in manifest.deletions)
        for name in ("tokens", "documents")
    }
    return {
        "generation": manifest.generation,
        "created": manifest.created,
        **sizes,
        "segments": len(manifest.files()),
        "bytes": sum(entry.bytes for entry in manifest.files()),
    }
