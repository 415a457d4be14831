"""Reads the blocks of a corpus without a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suffolk.build_index.inputs import find_inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.reader import read_blocks


def options(*corpora: Path | str, **more: Any) -> BuildOptions:
    """Options of a build of ``corpora`` that never runs."""
    return BuildOptions(corpora=tuple(map(str, corpora)), output=Path("/nowhere"), **{"tokenizer": "some", **more})


def blocks(*corpora: Path | str, **more: Any) -> list[Any]:
    """Return all blocks of ``corpora``."""
    chosen = options(*corpora, **more)
    return list(read_blocks(find_inputs(chosen), chosen, "u16"))
