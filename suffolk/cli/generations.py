"""List the generations of a datastore in storage, the newest last, or roll back to one of them.

A rollback publishes the content of an old generation again, under a new number. Servers that follow
the URL change to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from suffolk.build_index.report import count, megabytes
from suffolk.cli.options import setting
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.settings import REQUIRED, argument, option
from suffolk.serving.store.storage.generations import list_generations, roll_back

EXAMPLES = """
suffolk generations s3://bucket/code
suffolk generations s3://bucket/code --rollback 11"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    url: str = argument(REQUIRED, "a datastore's place in storage", metavar="URL")
    rollback: int | None = option(None, "number of the generation to publish again")
    json: bool = option(False, "print one JSON list")


def run(options: Options) -> int:
    if options.rollback is not None:
        roll_back(options.url, options.rollback)
    facts = list(map(_facts, list_generations(options.url)))
    if options.json:
        print(json.dumps(facts))
        return 0
    for row in facts:
        print(
            f"{row['generation']:>6}  {row['created']}  {row['tokens']:,} tokens of {count(row['documents'], 'document')}, "
            f"{count(row['segments'], 'segment')}, {megabytes(row['bytes'])}"
        )
    return 0


def _facts(manifest: Manifest) -> dict[str, Any]:
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
