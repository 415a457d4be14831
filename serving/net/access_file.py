"""The access file: tokens, certificates' subjects and quotas, as TOML. ``suffolk token`` edits it.

    [[token]]
    id = "0f3a5c7e9b1d2468"         # the public half of the token, and the salt of its hash
    name = "build machine"
    hash = "..."                    # BLAKE2b of the token's secret half
    roles = { acme = "append", "*" = "read" }

    [[subject]]
    name = "worker-1.example"       # common name, DNS name or URI of a client's certificate
    roles = { acme = "read" }

    [tenant.acme]                   # quotas, each optional
    calls_per_second = 100

A token is ``suffolk_ID_SECRET`` with 256 random bits of SECRET. So one fast salted hash is as safe as a slow one: slow
hashes protect secrets that can be guessed.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.manifest import write_atomically
from suffolk.datastore.toml import tomllib
from suffolk.serving.net.access_rules import PREFIX, AccessRules, hash_secret, parse_rules
from suffolk.serving.net.identity import Role

MAX_BYTES = 16 << 20
"""Size of an access file."""
_BLOCK = re.compile(r"^(?=\s*\[)", re.MULTILINE)
"""The beginning of each table."""


def read_access_file(path: Path) -> AccessRules:
    """The rules in ``path``.

    Raises:
        NotFound, PermissionDenied: the file cannot be read.
        InvalidArgument: it is malformed. The message names the table and the key, and never a token.
    """
    return _parse(_read(path), path)


def add_token(path: Path, name: str, roles: Mapping[str, Role]) -> str:
    """Add a token to ``path``, which is made if missing. Returns the token, which is stored nowhere.

    Raises as ``read_access_file``, and InvalidArgument for a name that is taken or malformed.
    """
    text = _read(path) if path.exists() else ""
    if name in [each.identity.name for each in _parse(text, path).tokens.values()]:
        raise InvalidArgument(f"{path}: a token has the name {name!r} already; remove it or choose another name")
    number, secret = secrets.token_hex(8), secrets.token_hex(32)
    shown = ", ".join(f"{json.dumps(tenant)} = {json.dumps(str(role))}" for tenant, role in roles.items())
    lines = ["[[token]]", f'id = "{number}"', f"name = {json.dumps(name)}", f'hash = "{hash_secret(secret, number)}"']
    text = f"{text.rstrip()}\n\n".lstrip() + "\n".join([*lines, f"roles = {{ {shown} }}", ""])
    _parse(text, path)
    write_atomically(path, text.encode())
    path.chmod(0o600)
    return f"{PREFIX}_{number}_{secret}"


def remove_token(path: Path, name_or_id: str) -> None:
    """Remove a token from ``path``. Raises as ``read_access_file``, and NotFound if there is no such token."""
    text = _read(path)
    found = [each.id for each in _parse(text, path).tokens.values() if name_or_id in (each.id, each.identity.name)]
    if not found:
        raise NotFound(f"{path}: no token has the name or id {name_or_id!r}; 'suffolk token list {path}' shows them")
    kept = [block for block in _BLOCK.split(text) if not _is_token(block, found[0])]
    _parse("".join(kept), path)
    write_atomically(path, "".join(kept).encode())
    path.chmod(0o600)


def _is_token(block: str, number: str) -> bool:
    found = tomllib.loads(block).get("token")
    return isinstance(found, list) and found[0].get("id") == number


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidArgument(f"access file {path}: it is larger than {MAX_BYTES} bytes; remove unused tokens")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"access file {path}: it is not UTF-8: {error.reason}") from None
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"access file {path}: it cannot be read: {error.strerror}; 'suffolk token add' makes one") from None


def _parse(text: str, path: Path) -> AccessRules:
    return parse_rules(text, f"access file {path}")
