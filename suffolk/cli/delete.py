"""Delete documents by id or by their metadata. Datastores that are opened afterwards behave as if
the documents had never been there. Running servers follow within a second, and are listed.

An id is FILE of a text file, FILE:LINE of a record, or FILE#ID if the datastore was built with
--id-field; 'suffolk lookup' shows it. A condition is FIELD=VALUE, FIELD!=VALUE or FIELD~GLOB;
'source', the id, is a field too. A document without the field meets only FIELD!=VALUE. A document
is deleted if it meets all conditions and, where ids are given, has one of these ids. The tokens
stay in the files, hidden from every answer, until 'suffolk compact' removes them. Exit code 1: no
document matches, and nothing was changed.

A live datastore that a server has open is named by its URL: the server deletes, for callers with
the role 'admin'. Documents that are not published yet are deleted too, with the URL and with the
folder. Their text leaves the folder at once, or within about a minute if a server deletes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import suffolk
from suffolk.build_index.delete import DeletionReport, delete
from suffolk.build_index.report import count
from suffolk.cli.options import setting
from suffolk.cli.store_lines import FORMS, change_report, example_id, whole_ids
from suffolk.datastore.appendable import LiveDeletion, LiveStats
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import name_text
from suffolk.datastore.settings import REQUIRED, argument, option
from suffolk.serving.net.url import is_url
from suffolk.serving.store.live_store.identity import has_log, published
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import open_live_store

EXAMPLES = """
suffolk delete STORE --id src/secret.py --id shard-3.jsonl.zst:4711 --id chats.jsonl#conversation-17
suffolk delete STORE --where license=gpl-3.0 --dry-run
suffolk delete STORE --where 'repo.name~acme/*' --where 'license!=mit'
suffolk delete STORE --where 'source~*/vendor/*'
suffolk delete grpc://127.0.0.1:7700/chat --group bob"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: str = argument(REQUIRED, "a datastore's folder, or grpc://HOST:PORT/NAME of a live one", metavar="STORE")
    id: tuple[str, ...] = option((), f"a document's id: {FORMS}; may be repeated", metavar="ID")
    where: tuple[str, ...] = option(
        (), "a condition, such as license=gpl-3.0; may be repeated", metavar="CONDITION", blank=True
    )
    group: str | None = option(None, "a group of a live datastore: all its documents, without --id and --where")
    dry_run: bool = option(False, "print what would be deleted, and change nothing; not for a URL")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    if not options.id and not options.where and options.group is None:
        raise InvalidArgument(
            "no document is named; give --id ID or --where CONDITION, or --group GROUP of a live datastore"
        )
    ids, where = (tuple(map(name_text, each)) for each in (options.id, options.where))
    report = _delete(replace(options, id=ids, where=where))
    changed = report.documents and not options.dry_run and not is_url(options.store)
    if options.json or report.documents:
        lines = _lines(report, options.dry_run)
        print(change_report(asdict(report), lines, Path(options.store), bool(changed), options.json))
    if report.unknown_ids:
        print("\n".join(_unknown(options.store, report.unknown_ids)), file=sys.stderr)
    elif not report.documents:
        text = "no document matches, or all that match are deleted already; nothing was changed"
        print(f"suffolk: {options.store}: {text}", file=sys.stderr)
    return 0 if report.documents else 1


def _delete(options: Options) -> DeletionReport:
    if is_url(options.store):
        return _delete_remotely(options)
    store = Path(options.store)
    if has_log(store):
        return _delete_live(store, options)
    if options.group is not None:
        raise InvalidArgument(f"--group is {options.group!r}, and {store} has no groups, only live datastores have")
    return delete(store, options.id, options.where, options.dry_run)


def _delete_live(store: Path, options: Options) -> DeletionReport:
    """Delete published and unpublished documents. Raises Unavailable if a server has ``store`` open."""
    with open_live_store(store, LiveSettings(durability="always", flush_tokens=0)) as live:
        found = live.delete(options.id, options.where, options.group, options.dry_run)
        if found.documents and not options.dry_run:
            live.scrub()
        return _report(options, found, live.stats())


def _delete_remotely(options: Options) -> DeletionReport:
    if options.dry_run:
        raise InvalidArgument(f"--dry-run is given for {options.store}; leave it out, or name the datastore's folder")
    with suffolk.open(options.store, append=True) as remote:
        return _report(options, remote.delete(options.id, options.where, options.group), remote.stats())


def _report(options: Options, found: LiveDeletion, left: LiveStats) -> DeletionReport:
    """The report of a deletion. ``left``: the state afterwards."""
    planned = (found.documents, found.tokens) if options.dry_run else (0, 0)
    return DeletionReport(
        options.store,
        found.generation,
        found.documents,
        found.tokens,
        left.documents + left.published_documents - planned[0],
        left.tokens + left.published_tokens - planned[1],
        found.unknown_ids,
    )


def _unknown(store: str, ids: tuple[str, ...]) -> Iterator[str]:
    meant, example = dict[str, str](), None
    if not is_url(store) and published(Path(store)) is not None:
        with open_datastore(store) as opened:
            meant, example = whole_ids(opened, ids), example_id(opened)
    shown = f"; an id is {FORMS}" + (f", such as {example}" if example else "")
    for each in ids:
        yield f"suffolk: no such document: {each}" + (f"; did you mean {meant[each]}?" if each in meant else shown)


def _lines(report: DeletionReport, dry_run: bool) -> list[str]:
    gone = f"{count(report.documents, 'document')}, {count(report.tokens, 'token')}"
    left = f"{count(report.left_documents, 'document')}, {count(report.left_tokens, 'token')}"
    return [
        f"{'would delete' if dry_run else 'deleted':<12}  {gone}",
        f"{'left':<12}  {left} (generation {report.generation})",
    ]
