"""Check a datastore for damage. The exit code is 0 if it is sound, 1 if it is damaged, and 2 if it
cannot be checked.

Of a live datastore, every record of its log is checked too, also while a server appends to it. The
end of the log may hold no whole record: a record is being written there, or a crash cut it off.
That is no damage.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suffolk.build_index.progress import segment_progress, show_progress
from suffolk.build_index.report import count
from suffolk.cli.options import setting
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.settings import REQUIRED, argument, option
from suffolk.serving.net.url import is_url
from suffolk.serving.store.live_store.check_log import check_log
from suffolk.serving.store.live_store.identity import has_log, log_folder, published

EXAMPLES = """
suffolk verify STORE                     read every byte once and compare the checksums
suffolk verify --depth headers STORE     only what opening a file checks: instant; leaves out the log
suffolk verify --depth full STORE        also prove that the suffixes are complete and in order"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: str = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    depth: str = option("checksums", "how thorough", choices=("headers", "checksums", "full"))


def run(options: Options) -> int:
    if is_url(options.store):
        raise InvalidArgument(f"{options.store}: verify needs the datastore's folder; run it where that folder is")
    try:
        for line in _check(Path(options.store), options.depth):
            print(line)
    except Corruption as error:
        print(f"suffolk: damaged: {error}", file=sys.stderr)
        return 1
    return 0


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
