"""Blocks of a corpus. A build reads, tokenizes and counts in these units of about 1 MiB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.build_index.skipped import Skipped
from suffolk.datastore.documents import Metadata

BLOCK_BYTES = 1 << 20
BLOCK_TOKENS = 1 << 19
MAX_LINE_BYTES = 256 << 20


class Position(NamedTuple):
    """Where reading continues: the index of a file in the inputs, and the number of blocks read from that file."""

    file: int
    block: int


START = Position(0, 0)
NamedOrigin = tuple[str, Metadata]
"""The source and metadata of a document."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole JSON lines of the file ``path``. ``first_line`` is the number of the first line, counted from 1."""

    path: str
    first_line: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of the table ``path`` as objects. ``first_row`` is the number of the first row, counted from 1."""

    path: str
    first_row: int
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Texts:
    """Whole documents as (source, text or UTF-8 bytes).

    ``left_out``: parts too damaged to read.
    """

    documents: tuple[tuple[str, str | bytes], ...]
    left_out: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Token ids of a file.

    Attributes:
        path: the file.
        first: index in the file of ``ids[0]``.
        ids: any integer array. End-of-document ids split documents further.
        starts: offsets in ``ids`` where a document begins.
        origins: the origin of each document at ``starts``. None: documents are named by their position in the file.
    """

    path: str
    first: int
    ids: npt.NDArray[np.integer]
    starts: tuple[int, ...] = (0,)
    origins: tuple[NamedOrigin, ...] | None = None


Payload = Lines | Records | Texts | TokenRun


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the inputs.

    Attributes:
        payload: the content.
        next: where reading continues after this block.
        bytes_read: bytes of the inputs read up to here.
    """

    payload: Payload
    next: Position
    bytes_read: int
