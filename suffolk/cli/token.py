"""Tokens of callers, in the access file that 'suffolk serve' and 'suffolk worker' take as --access.

A running server reads the file again within a second of a change."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.cli.options import setting
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import REQUIRED, argument, option
from suffolk.serving.net.access_file import AccessRules, add_token, parse_roles, read_access_file, remove_token
from suffolk.serving.net.identity import Identity


@dataclass(frozen=True, kw_only=True)
class AddToken(setting.Options):
    """Add a token to an access file, and print it. The file is made if it is missing.

    The token is shown only once: the file holds its hash. Roles are read (drafts, lookups, generation,
    info), append (also adds documents) and admin (also deletes documents, and sees the sources of
    drafted tokens). A role holds in one tenant, or with '*' in all. Metrics need read in '*'.
    """

    EXAMPLES = """
suffolk token add access.toml alice                          reads datastores of the tenant default
suffolk token add access.toml ci --role acme=append --role default=read > ci.token
suffolk token add access.toml prometheus --role '*=read'     what /metrics needs
suffolk serve wiki/ --access access.toml"""

    file: Path = argument(REQUIRED, "the access file", metavar="FILE.toml")
    name: str = argument(REQUIRED, "name of the token's owner, for logs and for 'suffolk token remove'", metavar="NAME")
    role: tuple[str, ...] = option(("default=read",), "TENANT=ROLE; may be repeated", metavar="TENANT=ROLE")

    def run(self) -> None:
        if "=" in self.name:
            raise InvalidArgument(f"NAME is {self.name!r}; give roles with --role, and a name without '='")
        print(add_token(self.file, self.name, parse_roles(self.role, "--role")))
        print("suffolk: shown only once; keep it in a file that others cannot read", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class ListTokens(setting.Options):
    """List the tokens and certificates of an access file, with their roles. Tokens themselves are not on file."""

    EXAMPLES = """
suffolk token list access.toml
suffolk token list access.toml --json"""

    file: Path = argument(REQUIRED, "the access file", metavar="FILE.toml")
    json: bool = option(False, "print one JSON list")

    def run(self) -> None:
        rows = list(_rows(read_access_file(self.file)))
        if self.json:
            print(json.dumps(rows))
            return
        for row in rows:
            roles = ", ".join(f"{tenant}={role}" for tenant, role in row["roles"].items())
            print(f"{row['kind']:<8} {row['id']:<16}  {row['name']:<24}  {roles}")


@dataclass(frozen=True, kw_only=True)
class RemoveToken(setting.Options):
    """Remove a token from an access file. A running server refuses further calls with it; running calls may finish."""

    EXAMPLES = """
suffolk token remove access.toml ci
suffolk token remove access.toml 0f3a5c7e9b1d2468"""

    file: Path = argument(REQUIRED, "the access file", metavar="FILE.toml")
    name: str = argument(REQUIRED, "name or id of the token", metavar="NAME")

    def run(self) -> None:
        remove_token(self.file, self.name)


COMMANDS = {"add": AddToken, "list": ListTokens, "remove": RemoveToken}


def _rows(rules: AccessRules) -> Iterator[dict[str, Any]]:
    for number, entry in rules.tokens.items():
        yield _row("token", number, entry.identity)
    for identity in rules.subjects.values():
        yield _row("subject", "", identity)


def _row(kind: str, number: str, identity: Identity) -> dict[str, Any]:
    roles = {tenant: str(role) for tenant, role in identity.roles.items()}
    return {"kind": kind, "id": number, "name": identity.name, "roles": roles}
