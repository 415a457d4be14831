"""Prompts to leave out, named in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from suffolk.benchmarks.prompts import decode_text, prompt_files, row_name, rows_in
from suffolk.datastore.errors import InvalidArgument, NotFound


def read_excluded(path: Path) -> frozenset[str]:
    """Read a file with one name per line, as ``python -m research.overlap --drop`` writes it.

    Raises:
        NotFound: the file cannot be read.
        InvalidArgument: the file is not UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise NotFound(f"exclusions {path}: {error.strerror}; name a file with one prompt id a line") from error
    return frozenset(decode_text(path, data).split("\n")) - {""}


def read_rows(paths: Sequence[Path]) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    """Yield file, line number and content of every row in files, and in all .jsonl files of folders.

    Raises the errors of ``load_prompts``.
    """
    for path in prompt_files(paths):
        for number, row in rows_in(path):
            yield path, number, row


def require_named(names: frozenset[str], paths: Sequence[Path]) -> None:
    """Check that every name belongs to a row in the files and folders.

    Raises:
        InvalidArgument: a name belongs to no row.
        NotFound: as ``read_rows``.
    """
    unknown = names - {row_name(row, path, number) for path, number, row in read_rows(paths)}
    if unknown:
        raise InvalidArgument(
            f"--exclude: {len(unknown)} of {len(names)} names match no prompt, for example {min(unknown)!r}; remove "
            f"them, or write the file again for these prompts"
        )
