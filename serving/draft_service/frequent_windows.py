"""Cuts the text around occurrences to what is frequent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from suffolk.datastore.context_query import Tokens
from suffolk.datastore.occurrence import Occurrence

Frequent = Callable[[Sequence[Tokens]], Sequence[bool]]
"""Whether each text occurs often enough. A longer text never does if a part of it does not."""


def cut_windows(places: Sequence[Occurrence], pattern: int, are_frequent: Frequent, longest: int) -> list[Occurrence]:
    """``places`` with windows that are frequent: as many tokens after the pattern as possible, then as many before it.

    Args:
        pattern: tokens of the pattern, which is frequent.
        longest: most tokens of a window.
    """
    rooms = [min(len(place.tokens), longest) - pattern for place in places]
    sizes = _largest(rooms, lambda at, size: places[at].tokens[: pattern + size], are_frequent)
    ends = [place.tokens[: pattern + size] for place, size in zip(places, sizes, strict=True)]
    rooms = [min(len(place.before), longest - len(end)) for place, end in zip(places, ends, strict=True)]
    sizes = _largest(rooms, lambda at, size: np.concatenate((_last(places[at].before, size), ends[at])), are_frequent)
    return [
        replace(place, tokens=end, before=_last(place.before, size))
        for place, end, size in zip(places, ends, sizes, strict=True)
    ]


def _largest(limits: Sequence[int], text: Callable[[int, int], Tokens], are_frequent: Frequent) -> list[int]:
    """For each place, the largest size of 0 to its limit with a frequent ``text(place, size)``. That of size 0 is frequent."""
    low, high = [0] * len(limits), list(limits)
    while open_ := [at for at in range(len(limits)) if low[at] < high[at]]:
        sizes = [(low[at] + high[at] + 1) // 2 for at in open_]
        answers = are_frequent([text(at, size) for at, size in zip(open_, sizes, strict=True)])
        for at, size, is_frequent in zip(open_, sizes, answers, strict=True):
            if is_frequent:
                low[at] = size
            else:
                high[at] = size - 1
    return low


def _last(tokens: npt.NDArray[np.uint32], size: int) -> npt.NDArray[np.uint32]:
    return tokens[len(tokens) - size :]
