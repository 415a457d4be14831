"""Compares copies of a store by the numbers and checksums of their documents. Finds the documents that a copy lacks, and needs no
history of changes for this."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.serving.store.live_store.contents import live_pages
from suffolk.serving.store.live_store.record import Change, KeyedAppend

Numbers = npt.NDArray[np.uint64]
Listed = npt.NDArray[np.uint64]
"""uint64[n, 2]: number and checksum of each document, by rising numbers."""
_DOCUMENT = struct.Struct("<QQqI")
"""Number, key of the group, time, and number of tokens."""
_MASK = (1 << 64) - 1
_LEAST_SLACK = 1024
"""The columns keep at least this many removed documents before they are compacted."""


class DocumentChecksums:
    """The numbers and checksums of one store's documents, in 17 bytes each. Not thread-safe.

    Attributes:
        digest: the sum of all checksums, modulo 2^64. Stores with the same documents have the same digest, whatever their history
            is.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all documents."""
        self._numbers, self._checksums, self._present = array("Q"), array("Q"), bytearray()
        self._removed = self.digest = 0

    def apply(self, change: Change) -> None:
        """Note a change. Removals of unknown documents are ignored."""
        if change.drop_before:
            self._remove(range(bisect_left(self._numbers, change.drop_before)))
        if len(change.removed):
            self._remove(self._places(change.removed.tolist()))
        if not len(change.lengths):
            return
        tokens, end = memoryview(change.tokens.astype("<u4").tobytes()), 0
        columns = (change.sequences, change.groups, change.times, change.lengths)
        for number, key, time, length, origin in zip(*(each.tolist() for each in columns), change.origins, strict=True):
            begin, end = end, end + 4 * length
            content = b"".join((_DOCUMENT.pack(number, key, time, length), tokens[begin:end], origin))
            self._add(number, int.from_bytes(blake2b(content, digest_size=8).digest(), "little"))

    def listed(self) -> Listed:
        """All documents."""
        columns = np.stack([np.array(self._numbers, np.uint64), np.array(self._checksums, np.uint64)], axis=1)
        return columns[np.frombuffer(bytes(self._present), np.bool_)]

    def _add(self, number: int, checksum: int) -> None:
        self._numbers.append(number)
        self._checksums.append(checksum)
        self._present.append(1)
        self.digest = (self.digest + checksum) & _MASK

    def _places(self, numbers: Iterable[int]) -> Iterable[int]:
        for number in numbers:
            place = bisect_left(self._numbers, number)
            if place < len(self._numbers) and self._numbers[place] == number:
                yield place

    def _remove(self, places: Iterable[int]) -> None:
        for place in places:
            if self._present[place]:
                self._present[place] = 0
                self._removed += 1
                self.digest = (self.digest - self._checksums[place]) & _MASK
        if self._removed > max(_LEAST_SLACK, len(self._present) // 2):
            left = self.listed()
            self._numbers, self._checksums = array("Q", left[:, 0].tobytes()), array("Q", left[:, 1].tobytes())
            self._present, self._removed = bytearray(b"\1" * len(left)), 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A leader's documents beside a follower's.

    Attributes:
        lacking: numbers of the documents that the follower lacks.
        extra: numbers of the documents that only the follower has.
        differs: whether a document of the follower has other content than the leader's.
    """

    lacking: Numbers
    extra: Numbers
    differs: bool

    def must_refill(self, position: int, end: int) -> bool:
        """Whether a follower with the next number ``position`` must be emptied first, because documents are added only in order.

        ``end``: the leader's next number.
        """
        return self.differs or position > end or bool(len(self.lacking) and int(self.lacking[0]) < position)


def compare(ours: Listed, theirs: Listed) -> Comparison:
    """Compare the documents of a leader and of a follower."""
    _, here, there = np.intersect1d(ours[:, 0], theirs[:, 0], assume_unique=True, return_indices=True)
    return Comparison(
        np.setdiff1d(ours[:, 0], theirs[:, 0], assume_unique=True),
        np.setdiff1d(theirs[:, 0], ours[:, 0], assume_unique=True),
        bool((ours[here, 1] != theirs[there, 1]).any()),
    )


def missing_changes(
    index: _native.LiveIndex, end: int, found: Comparison, keys: Sequence[KeyedAppend], dtype: npt.DTypeLike
) -> Iterator[Change]:
    """Changes after which a follower has exactly the documents of ``index`` below number ``end``.

    Documents come first, and removals last. So a replaced document stays until its replacement is there. The last
    change has the ``keys`` of appends, and names number ``end - 1``. So the follower's next number is ``end``.
    """
    for page in live_pages(index, end) if len(found.lacking) else ():
        lacking = np.isin(page.sequences, found.lacking, assume_unique=True)
        if lacking.any():
            yield replace(page, tokens=page.tokens.astype(dtype)).of(lacking)
    names_end = end > 1 and not _holds(index, end - 1)
    yield Change(removed=np.union1d(found.extra, np.uint64(end - 1)) if names_end else found.extra, keys=keys)


def _holds(index: _native.LiveIndex, number: int) -> bool:
    numbers = index.documents(number, 1, False)[0]
    return bool(len(numbers)) and int(numbers[0]) == number
