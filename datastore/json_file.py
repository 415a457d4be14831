"""Writes results as one file, usually JSON."""

from __future__ import annotations

import json
from pathlib import Path

from suffolk.datastore.manifest import write_atomically


def write_json(file: Path, document: object) -> None:
    """Write ``document`` as JSON. Raises as ``write_text``."""
    write_text(file, json.dumps(document, indent=2) + "\n")


def write_text(file: Path, content: str) -> None:
    """Write ``content``, whole or not at all. A link is followed: its target is replaced.

    Raises:
        PermissionDenied, ResourceExhausted: as ``write_atomically``.
    """
    if is_device(file):
        file.write_text(content, encoding="utf-8")
    else:
        write_atomically(file.resolve(), content.encode())


def is_device(file: Path) -> bool:
    """Whether ``file`` is a terminal, pipe or other device, which a file cannot replace."""
    return file.exists() and not file.is_file() and not file.is_dir()
