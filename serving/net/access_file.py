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

A token is ``suffolk_ID_SECRET``. SECRET is 256 random bits in hexadecimal. Nobody can guess it, so one fast salted hash is safe
enough.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffolk.datastore.checks import check_choice, check_keys
from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.files import read_bounded, write_atomically
from suffolk.datastore.settings import from_json, parse_toml
from suffolk.serving.net.identity import EVERY_TENANT, Identity, Role
from suffolk.serving.net.quota import TenantQuota
from suffolk.serving.net.url import NAME

PREFIX = "suffolk"
_KEYS = {"token": ("id", "name", "hash", "roles"), "subject": ("name", "roles"), "tenant": ()}
_HEX = re.compile("[0-9a-f]+")
MAX_BYTES = 16 << 20
"""Largest size of an access file."""
_BLOCK = re.compile(r"^(?=\s*\[)", re.MULTILINE)
"""The beginning of each table."""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token of the file. ``hash``: BLAKE2b of its secret, salted with ``id``; hexadecimal."""

    id: str
    hash: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The content of an access file. Immutable.

    Attributes:
        tokens: by id.
        subjects: identity by subject of a client's certificate.
        quotas: by tenant.
    """

    tokens: Mapping[str, TokenEntry] = field(default_factory=dict)
    subjects: Mapping[str, Identity] = field(default_factory=dict)
    quotas: Mapping[str, TenantQuota] = field(default_factory=dict)

    def find_token(self, token: str) -> Identity | None:
        """The identity of ``token``; None if it is unknown. Takes the same time for every wrong secret."""
        prefix, _, rest = token.partition("_")
        number, _, secret = rest.partition("_")
        entry = self.tokens.get(number)
        if prefix != PREFIX or entry is None or not hmac.compare_digest(hash_secret(secret, number), entry.hash):
            return None
        return entry.identity


def _parse(text: str, path: Path) -> AccessRules:
    """The rules in the text of the file ``path``. Raises InvalidArgument."""
    label = f"access file {path}"
    try:
        document = parse_toml(text)
    except ValueError as error:
        raise InvalidArgument(f"{label}: no TOML: {error}; mend that line") from None
    check_keys(label, document, list(_KEYS))
    tokens: dict[str, TokenEntry] = {}
    for at, table in enumerate(_tables(document, "token", label)):
        entry = _token(table, f"{label}: token[{at}]")
        if entry.id in tokens:
            raise InvalidArgument(f"{label}: token[{at}].id: another token has it; remove one of them")
        tokens[entry.id] = entry
    subjects = [
        _identity(each, f"{label}: subject[{at}]") for at, each in enumerate(_tables(document, "subject", label))
    ]
    tenants = document.get("tenant", {})
    if not isinstance(tenants, dict) or not all(isinstance(each, dict) for each in tenants.values()):
        raise InvalidArgument(f"{label}: tenant must hold tables, such as [tenant.acme]")
    quotas = {
        _tenant(name, label): from_json(TenantQuota, table, f"{label}: tenant.{name}")
        for name, table in tenants.items()
    }
    return AccessRules(tokens, {each.name: each for each in subjects}, quotas)


def parse_roles(texts: Sequence[str], label: str) -> dict[str, Role]:
    """Roles from TENANT=ROLE words. Raises InvalidArgument."""
    found: dict[str, Role] = {}
    for text in texts:
        tenant, equals, role = text.partition("=")
        if not equals:
            raise InvalidArgument(f"{label} is {text!r}; give TENANT=ROLE, such as default=read")
        found |= _roles({tenant: role}, label)
    return found


def hash_secret(secret: str, number: str) -> str:
    """BLAKE2b of a token's secret half, salted with its id; hexadecimal."""
    salt = number.encode("utf-8", "surrogateescape")[:16]
    return hashlib.blake2b(secret.encode("utf-8", "surrogateescape"), digest_size=32, salt=salt).hexdigest()


def _tables(document: Mapping[str, Any], key: str, label: str) -> list[dict[str, Any]]:
    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidArgument(f"{label}: {key} must be a list of tables; write [[{key}]] above each")
    for at, table in enumerate(found):
        for name in _KEYS[key]:
            if name not in table:
                raise InvalidArgument(f"{label}: {key}[{at}] has no {name}; it needs {', '.join(_KEYS[key])}")
        check_keys(f"{label}: {key}[{at}]", table, _KEYS[key])
    return found


def _token(table: Mapping[str, Any], label: str) -> TokenEntry:
    for name, digits in (("id", 16), ("hash", 64)):
        value = table[name]
        if not isinstance(value, str) or len(value) != digits or not _HEX.fullmatch(value):
            raise InvalidArgument(
                f"{label}.{name} must have {digits} hexadecimal digits; 'suffolk token add' writes them"
            )
    return TokenEntry(table["id"], table["hash"], _identity(table, label))


def _identity(table: Mapping[str, Any], label: str) -> Identity:
    name, roles = table["name"], table["roles"]
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 256:
        raise InvalidArgument(f"{label}.name must be a text of 1 to 256 printable characters")
    if not isinstance(roles, dict) or not roles:
        raise InvalidArgument(f'{label}.roles must be a table such as {{ acme = "read" }}')
    return Identity(name, _roles(roles, f"{label}.roles"))


def _roles(table: Mapping[str, Any], label: str) -> dict[str, Role]:
    known = {str(role): role for role in Role}
    for tenant, role in table.items():
        if tenant != EVERY_TENANT:
            _tenant(tenant, label)
        check_choice(f"{label}: the role of {tenant}", role, known)
    return {tenant: known[role] for tenant, role in table.items()}


def _tenant(name: str, label: str) -> str:
    if not NAME.fullmatch(name):
        raise InvalidArgument(
            f"{label}: {name!r} cannot name a tenant; use letters, digits, '.', '_' and '-', or '*' for all"
        )
    return name


def read_access_file(path: Path) -> AccessRules:
    """The rules in ``path``.

    Raises:
        NotFound, PermissionDenied: the file cannot be read.
        InvalidArgument: it is a folder, or malformed. The message names the table and the key, and never a token.
    """
    return _parse(_read(path), path)


def add_token(path: Path, name: str, roles: Mapping[str, Role]) -> str:
    """Add a token to ``path``, which is made if missing. Returns the token, which is stored nowhere.

    Raises the errors of ``read_access_file``, and InvalidArgument for a name that is taken or malformed.
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
    """Remove a token from ``path``. Raises the errors of ``read_access_file``, and NotFound if there is no such token."""
    text = _read(path)
    found = [each.id for each in _parse(text, path).tokens.values() if name_or_id in (each.id, each.identity.name)]
    if not found:
        raise NotFound(f"{path}: no token has the name or id {name_or_id!r}; 'suffolk token list {path}' shows them")
    kept = [block for block in _BLOCK.split(text) if not _is_token(block, found[0])]
    _parse("".join(kept), path)
    write_atomically(path, "".join(kept).encode())
    path.chmod(0o600)


def _is_token(block: str, number: str) -> bool:
    found = parse_toml(block).get("token")
    return isinstance(found, list) and found[0].get("id") == number


def _read(path: Path) -> str:
    try:
        return read_bounded(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidArgument(f"access file {path}: it is not UTF-8; save it as UTF-8") from None
    except IsADirectoryError:
        raise InvalidArgument(
            f"access file {path}: it is a folder; name a file, such as {path / 'access.toml'}"
        ) from None
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        advice = "'suffolk token add' makes one" if isinstance(error, FileNotFoundError) else "name another file"
        raise kind(f"access file {path}: it cannot be read: {error.strerror}; {advice}") from None
