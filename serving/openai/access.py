"""Access rules of a worker's HTTP endpoint: API keys and web origins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied

LEAST_KEY = 8
"""Fewest characters of an API key."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Access:
    """Access rules of the HTTP endpoint.

    Attributes:
        api_keys: keys that are accepted; empty for no keys.
        cors_origins: origins of web pages that may read answers; "*" for all.
    """

    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()


def read_keys(path: Path) -> tuple[str, ...]:
    """The API keys of a file, one per line. Empty lines and lines that begin with # are skipped.

    Raises:
        NotFound, PermissionDenied: the file cannot be read.
        InvalidArgument: the file is not UTF-8, has no key, or has a malformed key.
    """
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"api_key_file {path}: it is not UTF-8: {error.reason}") from None
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"api_key_file {path}: it cannot be read: {error.strerror}") from None
    keys = tuple(
        check_key(line, f"api_key_file {path}: line {number}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    )
    if not keys:
        raise InvalidArgument(f"api_key_file {path}: it has no key; write one in each line")
    return keys


def check_key(key: str, label: str) -> str:
    """Return ``key`` unchanged. Raises InvalidArgument if a header cannot hold it, or if it is too short."""
    if len(key) < LEAST_KEY or not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidArgument(
            f"{label}: a key has {LEAST_KEY} or more characters, of ASCII and without spaces; choose another"
        )
    return key


def check_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Return ``origins`` as a tuple. Raises InvalidArgument for an origin that no browser sends."""
    for index, origin in enumerate(origins):
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise InvalidArgument(
                f"cors_origin[{index}] is {origin!r}; write SCHEME://HOST or SCHEME://HOST:PORT in lower case, or *"
            )
    return tuple(origins)
