"""Records of the write-ahead log. A record holds one change of the live documents, and a checksum.

Layout (docs/reference/file-format.md): u64 bytes of the body; u32 checksum of the previous record; u32 CRC-32 of the salt, the
length, the checksum of the previous record, and the body; the body. The body is a head, then columns with an entry for each
document or token. The salt is random in each file, so no document can imitate a record. The checksums form a chain, which shows a
missing, doubled or replaced record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

VERSION = 3
"""Version of the files."""
PREFIX = struct.Struct("<QII")
"""Bytes of the body, the checksum of the previous record, and the checksum of this record."""
_HEAD = struct.Struct("<QIIIII")
"""``drop_before``; the number of documents and of removed documents; bytes a token, bytes of all origins, number of keys."""
_KEY = struct.Struct("<16sQIQIq")
COLUMN_BYTES = 3 * 8 + 2 * 4
"""Bytes of the columns of a document, without its tokens and its origin."""
MAX_BODY_BYTES = 1 << 32
"""The largest body that a reader accepts."""
_WIDTH_PLACE = 16
"""Offset in a body of the bytes a token."""
_SCAN_BYTES = 1 << 20
_WIDTHS = {2: np.dtype("<u2"), 4: np.dtype("<u4")}


def _none(dtype: str) -> Any:
    return field(default_factory=lambda: np.empty(0, dtype))


@dataclass(frozen=True, slots=True)
class KeyedAppend:
    """An append with a key, and its outcome.

    Attributes:
        key: 16 bytes, a hash of the key. FORGET: readers forget earlier keys.
        sequence, documents, tokens, replaced: as in ``Appended``.
        time: when the append was made, in seconds.
    """

    key: bytes
    sequence: int = 0
    documents: int = 0
    tokens: int = 0
    replaced: int = 0
    time: int = 0


FORGET = bytes(16)


@dataclass(frozen=True, slots=True)
class Change:
    """One change: documents are removed and appended together.

    Attributes:
        tokens: uint16 or uint32 [all tokens], the documents one after the other.
        lengths: uint32[documents], tokens of each document.
        sequences: uint64[documents], rising; no two documents of a store have the same sequence.
        groups: uint64[documents], keys of groups; 0: no group.
        times: int64[documents], seconds.
        origins: bytes of each document's origin (``suffolk.serving.store.live_store.contents``).
        removed: uint64[n], sequences of documents to remove. Unknown ones are ignored.
        drop_before: all earlier documents with a lower sequence are removed.
        keys: keys of this append or of earlier ones.
    """

    tokens: npt.NDArray[Any] = _none("<u2")
    lengths: npt.NDArray[np.uint32] = _none("<u4")
    sequences: npt.NDArray[np.uint64] = _none("<u8")
    groups: npt.NDArray[np.uint64] = _none("<u8")
    times: npt.NDArray[np.int64] = _none("<i8")
    origins: Sequence[bytes] = ()
    removed: npt.NDArray[np.uint64] = _none("<u8")
    drop_before: int = 0
    keys: Sequence[KeyedAppend] = ()

    def texts(self) -> list[npt.NDArray[Any]]:
        """The tokens of each document: views."""
        return np.split(self.tokens, np.cumsum(self.lengths[:-1], dtype=np.int64)) if len(self.lengths) else []

    def of(self, chosen: npt.NDArray[np.bool_]) -> Change:
        """A change with the ``chosen`` documents, and without removals. If the tokens were not read, it has none either."""
        places = np.flatnonzero(chosen)
        return Change(
            self.tokens[np.repeat(chosen, self.lengths)] if len(self.tokens) else self.tokens,
            self.lengths[places],
            self.sequences[places],
            self.groups[places],
            self.times[places],
            [self.origins[place] for place in places.tolist()],
        )


class Record(NamedTuple):
    """A record that was read.

    Attributes:
        body: the record without length and checksum.
        bytes: size of the record.
        checksum: the record's checksum.
        before: checksum of the previous record. The first record of a file has the salt.
    """

    change: Change
    body: memoryview
    bytes: int
    checksum: int
    before: int


def encode(change: Change) -> bytes:
    """The record of ``change``, as it is sent to other machines."""
    return frame(encode_body(change))


def frame(body: bytes, salt: int = 0, before: int = 0) -> bytes:
    """The record with this body in a file with this salt. ``before``: the checksum of the previous record."""
    fields = PREFIX.pack(len(body), before, 0)[:-4]
    return b"".join((fields, _checksum(body, fields, salt).to_bytes(4, "little"), body))


def checksum_of(record: bytes) -> int:
    """The checksum in a record that ``frame`` made."""
    return int(PREFIX.unpack_from(record)[2])


def encode_body(change: Change) -> bytes:
    """The record of ``change`` without its length and its checksum."""
    width = change.tokens.dtype.itemsize
    origins = b"".join(change.origins)
    columns: Sequence[tuple[npt.NDArray[Any], Any]] = (
        (change.removed, "<u8"),
        (change.sequences, "<u8"),
        (change.groups, "<u8"),
        (change.times, "<i8"),
        (change.lengths, "<u4"),
        (np.fromiter(map(len, change.origins), np.uint32, len(change.origins)), "<u4"),
        (change.tokens, _WIDTHS[width]),
    )
    counts = len(change.lengths), len(change.removed), width, len(origins), len(change.keys)
    keys = [_KEY.pack(*(getattr(each, field) for field in KeyedAppend.__slots__)) for each in change.keys]
    parts = [np.ascontiguousarray(column, kind).tobytes() for column, kind in columns]
    return b"".join([_HEAD.pack(change.drop_before, *counts), *parts, origins, *keys])


def decode(data: memoryview, salt: int = 0) -> Record | None:
    """The record at the beginning of ``data``; None if there is no whole record. Its arrays are views of ``data``.

    ``salt``: of the file; 0: the record was sent from another machine.
    """
    if len(data) < PREFIX.size:
        return None
    size, before, checksum = PREFIX.unpack_from(data)
    end = PREFIX.size + size
    if not _HEAD.size <= size <= MAX_BODY_BYTES or end > len(data):
        return None
    body = data[PREFIX.size : end]
    if _checksum(body, data[: PREFIX.size - 4], salt) != checksum:
        return None
    change = _parse(body)
    return None if change is None else Record(change, body, end, checksum, before)


def find(data: memoryview, salt: int) -> int | None:
    """The place of the first whole record in ``data``; None if there is none."""
    least, width_place = PREFIX.size + _HEAD.size, PREFIX.size + _WIDTH_PLACE
    for begin in range(0, len(data) - least + 1, _SCAN_BYTES):
        block = np.frombuffer(data[begin : begin + _SCAN_BYTES + least - 1], np.uint8)
        count = len(block) - least + 1
        # the bytes that hold the width are 2 or 4, and 0, 0, 0; few places are left to decode
        width, *rest = (block[place : place + count] for place in range(width_place, width_place + 4))
        zeros = ~(rest[0] | rest[1] | rest[2]).astype(np.bool_)
        for place in np.flatnonzero(((width == 2) | (width == 4)) & zeros).tolist():
            if decode(data[begin + place :], salt) is not None:
                return begin + int(place)
    return None


def _checksum(body: bytes | memoryview, prefix: bytes | memoryview, salt: int) -> int:
    """The checksum of a record. ``prefix``: the record's bytes before its checksum."""
    return zlib.crc32(body, zlib.crc32(prefix, salt))


def _parse(body: memoryview) -> Change | None:
    """The change of a body, None if its sizes do not add up."""
    if len(body) < _HEAD.size:
        return None
    drop_before, documents, removals, width, origin_bytes, keys = _HEAD.unpack_from(body)
    keys_begin = len(body) - _KEY.size * keys
    columns_end = _HEAD.size + 8 * removals + COLUMN_BYTES * documents
    token_bytes = keys_begin - columns_end - origin_bytes
    if width not in _WIDTHS or token_bytes < 0 or token_bytes % width:
        return None
    place = _HEAD.size

    def column(kind: Any, count: int) -> npt.NDArray[Any]:
        nonlocal place
        values = np.frombuffer(body, kind, count, place)
        place += values.nbytes
        return values

    removed = column("<u8", removals)
    sequences, groups, times = (column(kind, documents) for kind in ("<u8", "<u8", "<i8"))
    lengths, origin_lengths = column("<u4", documents), column("<u4", documents)
    tokens = column(_WIDTHS[width], token_bytes // width)
    if int(lengths.sum(dtype=np.uint64)) != len(tokens) or int(origin_lengths.sum(dtype=np.uint64)) != origin_bytes:
        return None
    ends = (place + np.cumsum(origin_lengths, dtype=np.int64)).tolist()
    starts = [place, *ends[:-1]]
    origins = [bytes(body[start:end]) for start, end in zip(starts, ends, strict=False)]
    appends = [KeyedAppend(*each) for each in _KEY.iter_unpack(body[keys_begin:])]
    return Change(tokens, lengths, sequences, groups, times, origins, removed, drop_before, appends)


class ChangeFeed(Protocol):
    """Takes the changes of a store that has copies. The writer calls it under its lock, so calls have the order of the
    changes."""

    @property
    def leads(self) -> bool:
        """Whether changes begin at this store. A store that does not lead repeats another store's changes."""
        ...

    def require_lead(self) -> None:
        """Check that the store may make changes of its own. Raises Unavailable: changes begin at another store."""
        ...

    def load(self, documents: Change) -> None:
        """Note documents that the store has when it is opened, the oldest first."""
        ...

    def publish(self, change: Change, body: bytes, position: int) -> None:
        """Pass a change on. ``body``: the body of its record in the log. ``position``: the number of the next change."""
        ...

    def clear(self) -> None:
        """Note that the store has no documents any more."""
        ...
