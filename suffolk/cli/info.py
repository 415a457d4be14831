"""Show what a datastore holds: tokens, documents, bytes a token, bytes in memory, tokenizer, segments."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import suffolk
from suffolk.build_index.report import count
from suffolk.cli.filled import filled
from suffolk.cli.printable import printable

EPILOG = """examples:
  suffolk info STORE
  suffolk info --json STORE
  suffolk info grpc://127.0.0.1:7700/code"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("store", type=filled, metavar="STORE", help="a datastore's folder, or grpc://host:port/name")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    store = suffolk.open(args.store)
    try:
        facts = store.info()
        if isinstance(store, suffolk.Datastore):
            facts["resident_bytes"] = store.resident_bytes()
    finally:
        store.close()
    print(json.dumps(facts, indent=2) if args.json else "\n".join(_lines(facts)))
    return 0


def _lines(facts: dict[str, Any]) -> list[str]:
    segments = facts.get("segments", [])
    lines = []
    for name, value in facts.items():
        if name in ("tokens", "documents", "deleted_tokens", "deleted_documents", "bytes") and isinstance(value, int):
            lines.append(f"{name:<16} {value:,}")
        elif name == "resident_bytes":
            lines.append(f"{name:<16} {'unknown: the files belong to another user' if value is None else f'{value:,}'}")
        elif name == "bytes_per_token":
            lines.append(f"{name:<16} {value:.3f}")
        elif name == "tokenizer":
            lines.append(f"{name:<16} {value or 'unknown'}")
        elif name == "settings":
            lines.extend(_settings(value))
        elif name != "segments":
            lines.append(f"{name:<16} {value}")
    if isinstance(segments, list):
        lines.append(f"{'segments':<16} {len(segments)}")
        lines.extend(
            f"  {segment['name']}: {count(segment['tokens'], 'token')}, {count(segment['documents'], 'document')}, "
            f"{segment['bytes']:,} bytes"
            for segment in segments
        )
    return lines


def _settings(settings: dict[str, Any]) -> Iterator[str]:
    """How it was built: a line for each build with its date and corpora, and what else there is."""
    for key, value in settings.items():
        if key != "builds" or not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            yield f"{'settings.' + key:<16} {value}"
            continue
        yield f"{'builds':<16} {len(value)}"
        for each in value:
            corpora = each.get("corpora")
            names = ", ".join(map(str, corpora)) if isinstance(corpora, list) else "of unknown corpora"
            if (
                isinstance(corpora, list)
                and isinstance(given := each.get("corpora_given"), int)
                and given > len(corpora)
            ):
                names += f" and {given - len(corpora)} more"
            yield printable(f"  {each.get('built', 'unknown date')}: {names}")
