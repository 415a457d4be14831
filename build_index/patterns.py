"""Expands patterns of file names."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator


def expand_pattern(pattern: str) -> tuple[list[str], list[str]]:
    """The names that ``pattern`` matches, and the linked folders that ``**`` did not enter because links may form cycles.

    Raises OSError if a folder below ``**`` cannot be listed.
    """
    linked: set[str] = set()
    return sorted(set(_matches(pattern, linked))), sorted(linked)


def _matches(pattern: str, linked: set[str]) -> Iterator[str]:
    parts = pattern.split(os.sep)
    if "**" not in parts:
        yield from glob.iglob(pattern)
        return
    place = parts.index("**")
    start, rest = "".join(part + os.sep for part in parts[:place]), os.sep.join(parts[place + 1 :] or "*")
    for base in glob.iglob(start) if start else ("",):
        for folder in _folders(base, linked):
            yield from _matches(glob.escape(folder) + rest, linked)


def _folders(folder: str, linked: set[str]) -> Iterator[str]:
    """``folder`` and the folders below it, without hidden ones. ``folder`` is empty or ends with a separator."""
    yield folder
    with os.scandir(folder or os.curdir) as entries:
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    for path in (folder + name for name in names):
        if os.path.islink(path) and os.path.isdir(path):
            linked.add(path)
        elif os.path.isdir(path):
            yield from _folders(path + os.sep, linked)
