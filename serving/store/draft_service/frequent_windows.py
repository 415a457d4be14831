"""Cuts texts to what is frequent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from suffolk.datastore.context_query import Tokens
from suffolk.datastore.occurrence import Occurrence

Frequent = Callable[[Sequence[int], Sequence[Tokens]], Sequence[bool]]
"""Whether each text, which belongs to the entry at the same place, is frequent. A text is not if a part of it is not."""


def cut_windows(places: Sequence[Occurrence], pattern: int, are_frequent: Frequent, longest: int) -> list[Occurrence]:
    """``places`` with windows that are frequent: as many tokens after the pattern as possible, then as many before it.

    Args:
        pattern: tokens of the pattern, which is frequent.
        longest: most tokens of a window.
    """
    rooms = [min(len(place.tokens), longest) - pattern for place in places]
    sizes = largest_frequent(rooms, lambda at, size: places[at].tokens[: pattern + size], are_frequent)
    ends = [place.tokens[: pattern + size] for place, size in zip(places, sizes, strict=True)]
    rooms = [min(len(place.before), longest - len(end)) for place, end in zip(places, ends, strict=True)]
    sizes = largest_frequent(
        rooms, lambda at, size: np.concatenate((_last(places[at].before, size), ends[at])), are_frequent
    )
    return [
        replace(place, tokens=end, before=_last(place.before, size))
        for place, end, size in zip(places, ends, sizes, strict=True)
    ]


def largest_frequent(limits: Sequence[int], text: Callable[[int, int], Tokens], are_frequent: Frequent) -> list[int]:
    """For each entry, the largest size of 0 to its limit with a frequent ``text(entry, size)``. That of size 0 is frequent.

    Limits are tried first, because most are frequent. Then it bisects.
    """
    low, high, sizes = [0] * len(limits), list(limits), list(limits)
    while open_ := [at for at in range(len(limits)) if low[at] < high[at]]:
        answers = are_frequent(open_, [text(at, sizes[at]) for at in open_])
        for at, is_frequent in zip(open_, answers, strict=True):
            if is_frequent:
                low[at] = sizes[at]
            else:
                high[at] = sizes[at] - 1
            sizes[at] = (low[at] + high[at] + 1) // 2
    return low


def _last(tokens: npt.NDArray[np.uint32], size: int) -> npt.NDArray[np.uint32]:
    return tokens[len(tokens) - size :]
