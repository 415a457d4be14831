"""What a follower lacks, as changes: computed from the documents that both sides hold, not from a history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.serving.live_store.contents import live_pages
from suffolk.serving.live_store.record import Change

Runs = npt.NDArray[np.uint64]
"""uint64[n, 2]: begin and end of each run of documents, by their numbers, rising."""


def held_runs(index: _native.LiveIndex, end: int) -> Runs:
    """The documents in memory below number ``end``."""
    numbers = _numbers(index, end)
    if not len(numbers):
        return np.empty((0, 2), np.uint64)
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    begins, ends = np.append(0, breaks + 1), np.append(breaks, len(numbers) - 1)
    return np.stack([numbers[begins], numbers[ends] + np.uint64(1)], axis=1)


def out_of_order(index: _native.LiveIndex, held: Runs, position: int) -> npt.NDArray[np.uint64]:
    """The documents of ``index`` that a follower with ``held`` lacks, and that have numbers below its next one, ``position``."""
    numbers = _numbers(index, position)
    return numbers[~_within(numbers, held)]


def missing_changes(index: _native.LiveIndex, end: int, held: Runs, dtype: npt.DTypeLike) -> Iterator[Change]:
    """Changes that give a follower with ``held`` the documents of ``index`` below number ``end``, and no others.

    Documents come first, and removals last. So a replaced document stays until its replacement is there. The last change also
    names number ``end - 1`` if no document has it, so that the follower's next number is ``end``.
    """
    for page in live_pages(index, end):
        lacking = ~_within(page.sequences, held)
        if lacking.any():
            yield _part(page, lacking, dtype)
    ours = np.append(_numbers(index, end), np.uint64(end - 1))
    yield Change(removed=np.setdiff1d(np.append(_expanded(held), ours[-1]), ours[:-1]))


def _numbers(index: _native.LiveIndex, end: int) -> npt.NDArray[np.uint64]:
    pages = live_pages(index, end, tokens=False)
    return np.concatenate([np.empty(0, np.uint64), *(page.sequences for page in pages)])


def _within(numbers: npt.NDArray[np.uint64], held: Runs) -> npt.NDArray[np.bool_]:
    if not len(held):
        return np.zeros(len(numbers), np.bool_)
    place = np.searchsorted(held[:, 0], numbers, side="right").astype(np.int64) - 1
    found: npt.NDArray[np.bool_] = (place >= 0) & (numbers < held[np.maximum(place, 0), 1])
    return found


def _expanded(held: Runs) -> npt.NDArray[np.uint64]:
    lengths = (held[:, 1] - held[:, 0]).astype(np.int64)
    offsets = np.cumsum(lengths) - lengths
    within_run = np.arange(lengths.sum()) - np.repeat(offsets, lengths)
    return np.repeat(held[:, 0], lengths) + within_run.astype(np.uint64)


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
