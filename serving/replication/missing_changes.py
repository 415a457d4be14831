"""What a follower lacks, as changes: computed from the documents that both sides hold, not from a history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.serving.live_store.contents import live_pages
from suffolk.serving.live_store.record import Change, KeyedAppend
from suffolk.serving.replication.document_table import Listed

Numbers = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A leader's documents beside a follower's.

    Attributes:
        lacking: numbers of the documents that the follower lacks.
        extra: numbers of those that it has, and the leader has not.
        differs: whether it has a document with another content.
    """

    lacking: Numbers
    extra: Numbers
    differs: bool

    def must_refill(self, position: int, end: int) -> bool:
        """Whether a follower with the next number ``position`` must begin from nothing, because documents come in order only.

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
    """Changes that give a follower the documents of ``index`` below number ``end``, and no others.

    Documents come first, and removals last. So a replaced document stays until its replacement is there. The last change also
    names number ``end - 1``, so that the follower's next number is ``end``, and has the ``keys`` of appends.
    """
    for page in live_pages(index, end) if len(found.lacking) else ():
        lacking = np.isin(page.sequences, found.lacking, assume_unique=True)
        if lacking.any():
            yield _part(page, lacking, dtype)
    names_end = end > 1 and not _holds(index, end - 1)
    yield Change(removed=np.union1d(found.extra, np.uint64(end - 1)) if names_end else found.extra, keys=keys)


def _holds(index: _native.LiveIndex, number: int) -> bool:
    numbers = index.documents(number, 1, False)[0]
    return bool(len(numbers)) and int(numbers[0]) == number


def _part(page: Change, chosen: npt.NDArray[np.bool_], dtype: npt.DTypeLike) -> Change:
    places = np.flatnonzero(chosen)
    tokens: npt.NDArray[Any] = page.tokens[np.repeat(chosen, page.lengths)].astype(dtype)
    return Change(
        tokens,
        page.lengths[places],
        page.sequences[places],
        page.groups[places],
        page.times[places],
        [page.origins[place] for place in places.tolist()],
    )
