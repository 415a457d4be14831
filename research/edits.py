"""Reads edits of source files from the history of a git repository."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import NotFound

LINES = range(20, 250)
"""Least and most lines of an edited file."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A file before and after a commit."""

    path: str
    before: str
    after: str


def read_edits(repository: Path, suffix: str, most: int, seed: int) -> list[Edit]:
    """Return up to ``most`` random edits of files whose names end with ``suffix``.

    Raises NotFound if git is missing, or ``repository`` is not a git repository.
    """
    changes = list(_changes(repository, suffix))
    random.Random(seed).shuffle(changes)
    found: list[Edit] = []
    for commit, path in changes:
        if len(found) == most:
            break
        before, after = (_git(repository, "show", f"{version}:{path}") for version in (f"{commit}~1", commit))
        if before != after and all(text.count("\n") in LINES for text in (before, after)):
            found.append(Edit(path, before, after))
    return found


def _changes(repository: Path, suffix: str) -> Iterator[tuple[str, str]]:
    """Return (commit, path) of each file that a commit modifies."""
    log = _git(repository, "log", "--no-merges", "--format=@%H", "--name-status", "--diff-filter=M", "--", f"*{suffix}")
    commit = ""
    for line in log.splitlines():
        if line.startswith("@"):
            commit = line[1:]
        elif line.startswith("M\t"):
            yield commit, line[2:]


def _git(repository: Path, *arguments: str) -> str:
    try:
        command = ["git", "-C", str(repository), *arguments]
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotFound(f"repository {repository}: git {arguments[0]} fails ({error}); name a git repository") from None
