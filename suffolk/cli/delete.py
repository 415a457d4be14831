"""Delete documents by id or by their metadata. Datastores that are opened afterwards behave as if
the documents had never been there. Running servers follow within a second, and are listed.

An id is FILE of a text file, FILE:LINE of a record, or FILE#ID if the datastore was built with
--id-field; 'suffolk lookup' shows it. A condition is FIELD=VALUE, FIELD!=VALUE or FIELD~GLOB;
'source', the id, is a field too. A document without the field meets only FIELD!=VALUE. A document
is deleted if it meets all conditions and, where ids are given, has one of these ids. The tokens
stay in the files, hidden from every answer, until 'suffolk compact' removes them. Exit code 1: no
document matches, and nothing was changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from suffolk.build_index.delete import DeletionReport, delete
from suffolk.build_index.report import count
from suffolk.cli.documents import FORMS, example_id, whole_ids
from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.readers import reader_lines, wait_for_readers
from suffolk.serving.live_store.identity import has_log

EXAMPLES = """
suffolk delete STORE --id src/secret.py --id shard-3.jsonl.zst:4711 --id chats.jsonl#conversation-17
suffolk delete STORE --where license=gpl-3.0 --dry-run
suffolk delete STORE --where 'repo.name~acme/*' --where 'license!=mit'
suffolk delete STORE --where 'source~*/vendor/*'"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    id: tuple[str, ...] = option((), f"a document's id: {FORMS}; may be repeated", metavar="ID")
    where: tuple[str, ...] = option(
        (), "a condition, such as license=gpl-3.0; may be repeated", metavar="CONDITION", blank=True
    )
    dry_run: bool = option(False, "print what would be deleted, and change nothing")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    report = delete(options.store, options.id, options.where, dry_run=options.dry_run)
    changed = report.documents and not options.dry_run
    readers = wait_for_readers(options.store, report.generation) if changed else []
    if options.json:
        print(json.dumps(asdict(report) | {"readers": list(map(asdict, readers))}))
    elif report.documents:
        print("\n".join([*_lines(report, options.dry_run), *reader_lines(readers, report.generation)]))
    if has_log(options.store):
        print(
            f"suffolk: {options.store} is live: this command deletes published documents only. Delete those of groups, and those "
            "that are not published yet, with suffolk.open(URL).delete(...)",
            file=sys.stderr,
        )
    if report.unknown_ids:
        print("\n".join(_unknown(options.store, report.unknown_ids)), file=sys.stderr)
    if report.documents:
        return 0
    print(
        f"suffolk: {options.store}: no document matches, or all that match are deleted already; nothing was changed",
        file=sys.stderr,
    )
    return 1


def _unknown(path: Path, ids: tuple[str, ...]) -> Iterator[str]:
    with open_datastore(path) as store:
        meant, example = whole_ids(store, ids), example_id(store)
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
