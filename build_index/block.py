"""Blocks: about a megabyte of a corpus, the unit of reading, tokenizing and counting."""

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
    """Where reading continues: a file's index in the inputs, and the number of its blocks that are done."""

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
    """Whole documents as (source, text or UTF-8 bytes), and the metadata of each; empty if no document has any."""

    documents: tuple[tuple[str, str | bytes], ...]
    metadata: tuple[Metadata, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Token ids of a file.

    Attributes:
        path: the file.
        first: index in the file of the first of ``ids``.
        ids: any integer array. End-of-document ids split documents further.
        starts: offsets in ``ids`` where a document begins.
        sources: the name of each document at ``starts``; None if the file has none, then documents are named by position.
        metadata: of each document at ``starts``; empty if no document has any.
    """

    path: str
    first: int
    ids: npt.NDArray[np.integer]
    starts: tuple[int, ...] = (0,)
    sources: tuple[str, ...] | None = None
    metadata: tuple[Metadata, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """A payload, where reading continues after it, the bytes of the inputs read so far, and the files skipped so far."""

    payload: Lines | Texts | TokenRun
    next: Position
    bytes_read: int
    skipped: dict[str, int]
