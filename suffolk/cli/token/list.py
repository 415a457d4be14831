"""List the tokens and certificates of an access file, with their roles. Tokens themselves are not on file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.serving.net.access_file import AccessRules, read_access_file
from suffolk.serving.net.identity import Identity

EXAMPLES = """
suffolk token list access.toml
suffolk token list access.toml --json"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    file: Path = argument(REQUIRED, "the access file", metavar="FILE.toml")
    json: bool = option(False, "print one JSON list")


def run(options: Options) -> int:
    """Print the tokens and subjects; returns 0."""
    rows = list(_rows(read_access_file(options.file)))
    if options.json:
        print(json.dumps(rows))
        return 0
    for row in rows:
        roles = ", ".join(f"{tenant}={role}" for tenant, role in row["roles"].items())
        print(f"{row['kind']:<8} {row['id']:<16}  {row['name']:<24}  {roles}")
    return 0


def _rows(rules: AccessRules) -> Iterator[dict[str, Any]]:
    for number, entry in rules.tokens.items():
        yield _row("token", number, entry.identity)
    for identity in rules.subjects.values():
        yield _row("subject", "", identity)


def _row(kind: str, number: str, identity: Identity) -> dict[str, Any]:
    roles = {tenant: str(role) for tenant, role in identity.roles.items()}
    return {"kind": kind, "id": number, "name": identity.name, "roles": roles}
