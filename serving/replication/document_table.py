"""The numbers and checksums of the documents in memory, by which copies of a store are compared."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from suffolk.serving.live_store.record import Change

Listed = npt.NDArray[np.uint64]
"""uint64[n, 2]: number and checksum of each document, by rising numbers."""
_DOCUMENT = struct.Struct("<QQqI")
"""Number, key of the group, time, and number of tokens."""
_MASK = (1 << 64) - 1
_LEAST_SLACK = 1024
"""Removed documents that are kept in the columns at least."""


class DocumentTable:
    """The documents of one store. It needs one caller at a time. 17 bytes for each document.

    Attributes:
        digest: the sum of all checksums, modulo 2^64. Stores with the same documents have the same, however they got them.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all documents."""
        self._numbers, self._checksums, self._present = array("Q"), array("Q"), bytearray()
        self._removed = self.digest = 0

    def apply(self, change: Change) -> None:
        """Note a change. Documents to remove that are not there are ignored."""
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
