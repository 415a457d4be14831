"""Writes files of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    """Write ``rows`` to ``path``, one a line; return ``path``."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
