"""Who may use the HTTP endpoint of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied

LEAST_KEY = 8
"""Fewest characters of an API key."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the HTTP endpoint.

    Attributes:
        api_keys: keys that are accepted; empty for no keys.
        cors_origins: origins of web pages that may read answers; "*" for all.
    """

    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()


def read_keys(path: Path) -> tuple[str, ...]:
    """The API keys of a file, one in each line; empty lines and those that begin with # are skipped.

    Raises:
        NotFound, PermissionDenied: the file cannot be read.
        InvalidArgument: it is no UTF-8, or has no key.
    """
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"api_key_file {path}: it is no UTF-8: {error.reason}") from None
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"api_key_file {path}: it cannot be read: {error.strerror}") from None
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise InvalidArgument(f"api_key_file {path}: there is no key in it; write one in each line")
    return keys


def check_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """``keys``. Raises InvalidArgument for one that a header cannot hold, or that is too short."""
    for index, key in enumerate(keys):
        if len(key) < LEAST_KEY or not (key.isascii() and key.isprintable() and " " not in key):
            raise InvalidArgument(
                f"api_key[{index}]: a key has {LEAST_KEY} or more characters, of ASCII and without spaces; choose another"
            )
    return tuple(keys)
