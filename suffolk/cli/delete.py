"""Delete documents by id or by their metadata. What is opened later answers as if they had never been there.

A condition is FIELD=VALUE, FIELD!=VALUE or FIELD~GLOB; 'source' is a field too. A document that lacks the field meets only
FIELD!=VALUE. All conditions must hold, and the document must have one of the ids if any is given. The tokens stay in the
files, hidden from every answer, until 'suffolk compact' takes them out. Exit code 1: no document is meant, and nothing was changed.
"""

from __future__ import annotations

import argparse
import json
import sys

from suffolk.build_index.delete import DeletionReport, delete
from suffolk.build_index.report import count
from suffolk.cli.filled import filled, filled_path

EPILOG = """examples:
  suffolk delete STORE --id src/secret.py --id shard-3.jsonl.zst#4711
  suffolk delete STORE --where license=gpl-3.0 --dry-run
  suffolk delete STORE --where 'repo.name~acme/*' --where 'license!=mit'
  suffolk delete STORE --where 'source~*/vendor/*'"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk delete``."""
    parser.epilog = EPILOG
    parser.add_argument("store", type=filled_path, metavar="STORE", help="a datastore's folder")
    parser.add_argument(
        "--id",
        type=filled,
        action="append",
        default=[],
        metavar="SOURCE",
        help="a document's source, whole; may be repeated",
    )
    parser.add_argument(
        "--where", action="append", default=[], metavar="CONDITION", help="such as license=gpl-3.0; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be deleted, and change nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Delete or count; returns the exit code."""
    report = delete(args.store, args.id, args.where, dry_run=args.dry_run)
    if args.json:
        print(json.dumps(report.to_dict()))
    elif report.documents:
        print("\n".join(_lines(report, args.dry_run)))
    for source in report.unknown_ids:
        print(f"suffolk: no such document: {source}", file=sys.stderr)
    if report.documents:
        return 0
    print(f"suffolk: {args.store}: no document that is not deleted yet is meant; nothing was changed", file=sys.stderr)
    return 1


def _lines(report: DeletionReport, dry_run: bool) -> list[str]:
    gone = f"{count(report.documents, 'document')}, {count(report.tokens, 'token')}"
    left = f"{count(report.left_documents, 'document')}, {count(report.left_tokens, 'token')}"
    return [
        f"{'would delete' if dry_run else 'deleted':<12}  {gone}",
        f"{'left':<12}  {left} (generation {report.generation})",
    ]
