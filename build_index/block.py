"""Blocks: about a megabyte of a corpus, the unit that is read, tokenized and counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.datastore.documents import Metadata

BLOCK_BYTES = 1 << 20
BLOCK_TOKENS = 1 << 19
MAX_LINE_BYTES = 256 << 20


class Position(NamedTuple):
    """Where to read on: a file's index in the inputs, and how many of its blocks are done."""

    file: int
    block: int


START = Position(0, 0)


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole JSON lines of the file ``path``, the first of them its line number ``first_line`` (from 1)."""

    path: str
    first_line: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Texts:
    """Whole documents as (source, text or UTF-8 bytes), and the metadata of each, or none for any."""

    documents: tuple[tuple[str, str | bytes], ...]
    metadata: tuple[Metadata, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Token ids of the file ``path`` from its id ``first`` on; ``starts`` are the offsets where a document begins.

    ``ids`` is any integer array; ids equal to the end-of-document id split documents further. ``sources`` names the
    documents at ``starts`` where the file does, else they are named by position; ``metadata`` is theirs, or none for any.
    """

    path: str
    first: int
    ids: npt.NDArray[np.integer]
    starts: tuple[int, ...] = (0,)
    sources: tuple[str, ...] | None = None
    metadata: tuple[Metadata, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A payload, where to read on after it, how many bytes of the inputs on disk lie behind it, and files skipped so far."""

    payload: Lines | Texts | TokenRun
    next: Position
    bytes_read: int
    skipped: dict[str, int]
