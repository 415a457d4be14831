"""Show the contents of a datastore: tokens, documents, bytes per token, bytes in memory, tokenizer,
and segments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import suffolk
from suffolk.build_index.report import count
from suffolk.cli.options import setting
from suffolk.cli.store_lines import example_id, unpublished_note
from suffolk.datastore.files import printable
from suffolk.datastore.settings import REQUIRED, argument, option

EXAMPLES = """
suffolk info STORE
suffolk info --json STORE
suffolk info grpc://127.0.0.1:7700/code"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: str = argument(REQUIRED, "a datastore's folder, or grpc://HOST:PORT/NAME", metavar="STORE")
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    store = suffolk.open(options.store)
    try:
        facts = store.info()
        if isinstance(store, suffolk.Datastore):
            facts |= {"resident_bytes": store.resident_bytes(), "example_id": example_id(store)}
            facts |= {"unpublished": unpublished_note(options.store)}
    finally:
        store.close()
    print(json.dumps(facts, indent=2) if options.json else "\n".join(_lines(facts)))
    return 0


def _lines(facts: dict[str, Any]) -> list[str]:
    segments = facts.get("segments", [])
    lines = []
    for name, value in facts.items():
        if name in ("tokens", "documents", "deleted_tokens", "deleted_documents", "bytes") and isinstance(value, int):
            lines.append(f"{name:<18} {value:,}")
        elif name == "resident_bytes":
            lines.append(f"{name:<18} {'unknown: the files belong to another user' if value is None else f'{value:,}'}")
        elif name == "example_id":
            if value is not None:
                lines.append(f"{'document ids':<18} such as {printable(value)}  (for 'suffolk delete --id')")
        elif name == "unpublished":
            if value is not None:
                lines.append(f"{'not published':<18} {value}")
        elif name == "bytes_per_token":
            lines.append(f"{name:<18} {value:.3f}")
        elif name == "tokenizer":
            lines.append(f"{name:<18} {value or 'unknown'}")
        elif name == "settings":
            lines.extend(_settings(value))
        elif name != "segments":
            lines.append(f"{name:<18} {value}")
    if isinstance(segments, list):
        lines.append(f"{'segments':<18} {len(segments)}")
        lines.extend(
            f"  {segment['name']}: {count(segment['tokens'], 'token')}, {count(segment['documents'], 'document')}, "
            f"{segment['bytes']:,} bytes"
            for segment in segments
        )
    return lines


def _settings(settings: dict[str, Any]) -> Iterator[str]:
    """The settings of the build: a line for each build with its date and corpora, and the rest."""
    for key, value in settings.items():
        if key != "builds" or not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            yield f"{'settings.' + key:<18} {value}"
            continue
        yield f"{'builds':<18} {len(value)}"
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
