"""Datastores in folders: shown, checked, copied, split and compacted."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import suffolk
from suffolk.build_index.compact import CompactReport, compact
from suffolk.build_index.progress import segment_progress, show_progress
from suffolk.build_index.report import count, megabytes
from suffolk.build_index.split import split
from suffolk.cli.options.setting import Options
from suffolk.cli.store_lines import change_report, example_id, unpublished_note
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.files import printable
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.serving.net.url import is_url
from suffolk.serving.store.live_store.check_log import check_log
from suffolk.serving.store.live_store.identity import has_log, log_folder, published
from suffolk.serving.store.live_store.snapshot import LOCK_SECONDS, snapshot

MEASURABLE_SECONDS = 0.05
"""Least seconds over which a rate is shown. A rate over less time is noise."""
SIZES = ("tokens", "documents", "deleted_tokens", "deleted_documents", "bytes", "resident_bytes")


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

    def run(self) -> None:
        report = snapshot(self.store, self.output, self.link, self.wait)
        if self.json:
            print(json.dumps(asdict(report)))
        else:
            print(
                f"copied {report.store} (generation {report.generation}) to {report.output}: {count(report.files, 'file')}, "
                f"{megabytes(report.bytes)}, of these {megabytes(report.log_bytes)} not published yet, {report.seconds:.1f} s"
            )


@dataclass(frozen=True, kw_only=True)
class Split(Options):
    """Split a datastore into shards for several servers.

    OUT/shard-0, OUT/shard-1, ... are datastores with some of its segments each. Segment files are linked, so OUT must be on
    the same file system, and it takes no space. Serve all shards under the same NAME; the address
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

    def run(self) -> None:
        reports = split(self.store, self.output, self.shards)
        if self.json:
            print(json.dumps({"shards": [asdict(report) for report in reports]}))
            return
        for report in reports:
            print(
                f"{report.path}: {count(report.segments, 'segment')}, {count(report.documents, 'document')}, "
                f"{count(report.tokens, 'token')}, {megabytes(report.bytes)}"
            )


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
suffolk compact STORE --segments 4     into four: merges neighbours, the smallest pair first
suffolk compact STORE --threads 2"""

    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    segments: int = option(1, "segments to keep at most; more if these would exceed the largest of a build")
    threads: int = option(0, "threads that merge; 0 is one for each core (default: 0)")
    json: bool = option(False, "print one JSON object")

    def run(self) -> None:
        with show_progress() as progress:
            report = compact(self.store, self.segments, self.threads, progress)
        print(change_report(asdict(report), _compact_lines(report), self.store, report.changed, self.json))


@dataclass(frozen=True, kw_only=True)
class Info(Options):
    """Show the contents of a datastore: tokens, documents, bytes per token, bytes in memory, tokenizer,
    and segments.
    """

    EXAMPLES = """
suffolk info STORE
suffolk info --json STORE
suffolk info grpc://127.0.0.1:7700/code"""

    store: str = argument(REQUIRED, "a datastore's folder, or grpc://HOST:PORT/NAME", metavar="STORE")
    json: bool = option(False, "print one JSON object")

    def run(self) -> None:
        store = suffolk.open(self.store)
        try:
            facts = store.info()
            if isinstance(store, suffolk.Datastore):
                facts |= {"resident_bytes": store.resident_bytes(), "example_id": example_id(store)}
                facts |= {"unpublished": unpublished_note(self.store)}
        finally:
            store.close()
        print(json.dumps(facts, indent=2) if self.json else "\n".join(_info_lines(facts)))


@dataclass(frozen=True, kw_only=True)
class Verify(Options):
    """Check a datastore for damage. The exit code is 0 if it is sound, 1 if it is damaged, and 2 if it
    cannot be checked.

    In a live datastore, every record of its log is checked too, even while a server appends to it. The
    end of the log may hold no whole record: a record is being written there, or a crash cut it off.
    That is no damage.
    """

    EXAMPLES = """
suffolk verify STORE                     read every byte once and compare the checksums
suffolk verify --depth headers STORE     only what opening a file checks: instant; leaves out the log
suffolk verify --depth full STORE        also prove that the suffixes are complete and in order"""

    store: str = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    depth: str = option("checksums", "how thorough", choices=("headers", "checksums", "full"))

    def run(self) -> int:
        if is_url(self.store):
            raise InvalidArgument(f"{self.store}: verify needs the datastore's folder; run it where that folder is")
        try:
            for line in _check(Path(self.store), self.depth):
                print(line)
        except Corruption as error:
            print(f"suffolk: damaged: {error}", file=sys.stderr)
            return 1
        return 0


COMMANDS = {"info": Info, "verify": Verify, "snapshot": Snapshot, "split": Split, "compact": Compact}


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


def _info_lines(facts: dict[str, Any]) -> Iterator[str]:
    labels = {"example_id": "document ids", "unpublished": "not published"}
    for name, value in facts.items():
        if name == "settings":
            yield from _settings(value)
        elif name != "segments" and not (value is None and name in labels):
            yield f"{labels.get(name, name):<18} {_shown(name, value)}"
    if isinstance(segments := facts.get("segments"), list):
        yield f"{'segments':<18} {len(segments)}"
        for each in segments:
            sizes = f"{count(each['tokens'], 'token')}, {count(each['documents'], 'document')}, {each['bytes']:,} bytes"
            yield f"  {each['name']}: {sizes}"


def _shown(name: str, value: Any) -> str:
    if name == "example_id":
        return f"such as {printable(value)}  (for 'suffolk delete --id')"
    if value is None:
        return "unknown: the files belong to another user" if name == "resident_bytes" else "unknown"
    if name in SIZES and isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _settings(settings: dict[str, Any]) -> Iterator[str]:
    """The settings of the builds as lines: one for each build with its date and corpora, then the other settings."""
    for key, value in settings.items():
        if key != "builds" or not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            yield f"{'settings.' + key:<18} {value}"
            continue
        yield f"{'builds':<18} {len(value)}"
        for each in value:
            names, corpora, given = "of unknown corpora", each.get("corpora"), each.get("corpora_given")
            if isinstance(corpora, list):
                more = f" and {given - len(corpora)} more" if isinstance(given, int) and given > len(corpora) else ""
                names = ", ".join(map(str, corpora)) + more
            yield printable(f"  {each.get('built', 'unknown date')}: {names}")


def _check(store: Path, depth: str) -> Iterator[str]:
    """Check the published generation and the log, and yield a line for each."""
    live = has_log(store)
    if not live or published(store) is not None:
        yield _check_files(store, depth)
    if live and depth != "headers":
        yield _check_log(store)


def _check_files(store: Path, depth: str) -> str:
    start = time.monotonic()
    with open_datastore(store) as opened, show_progress() as show:
        tokens = {entry.name: entry.tokens for entry in opened.manifest.files()}
        opened.verify(depth, segment_progress(show, "checking", tokens))
        facts = opened.info()
    return (
        f"{store}: sound ({depth}; generation {facts['generation']}, {count(len(facts['segments']), 'segment')}, "
        f"{facts['bytes']:,} bytes, {time.monotonic() - start:.1f} s)"
    )


def _check_log(store: Path) -> str:
    start = time.monotonic()
    report = check_log(store)
    torn = "" if report.torn is None else f"; {report.torn.bytes:,} bytes at the end are no whole record"
    return (
        f"{log_folder(store)}: sound ({count(report.records, 'record')}, {count(report.documents, 'document')}, "
        f"{count(report.tokens, 'token')}, {report.bytes:,} bytes{torn}, {time.monotonic() - start:.1f} s)"
    )
