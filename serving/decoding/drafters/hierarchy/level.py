"""One level of a hierarchy with its costs, and the distribution of accepted runs between two levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Within, check_fields

_MOST_ENTRIES = 1 << 16
_SUM_TOLERANCE = 1e-6
Probability = Annotated[float, Within(0, 1)]
Seconds = Annotated[float, Within(0, 1_000_000)]


@dataclass(frozen=True, slots=True)
class Level:
    """One level: a model, or retrieval. Raises InvalidArgument if a value is of another type or out of its range.

    Attributes:
        name: not empty.
        seconds: cost of a pass, above 0. Entry d of a tuple is the cost of a pass that verifies d drafted tokens. Beyond its end,
            costs grow linearly. A number is the cost of every pass. Retrieval has a number, 0 or more: the cost of a call.
        retrieval: whether the level is retrieval. It can only be the bottom level, and verifies nothing.
        found: for retrieval: entry j is the probability that exactly j tokens are found; the last entry: j or more. The sum is 1.
            None: as many tokens as requested are always found.
    """

    name: str
    seconds: Seconds | tuple[Seconds, ...]
    retrieval: bool = False
    found: tuple[Probability, ...] | None = None

    def __post_init__(self) -> None:
        of = f" of level {self.name}"
        check_fields(self, of)
        if not self.name.strip():
            raise InvalidArgument(f"name of a level is {self.name!r}; it must not be empty")
        several = not isinstance(self.seconds, float | int)
        if several and self.retrieval:
            raise InvalidArgument(f"seconds{of} is {self.seconds}; retrieval needs a single number, the cost of a call")
        costs = np.atleast_1d(np.asarray(self.seconds))
        if not 0 < len(costs) <= _MOST_ENTRIES:
            raise InvalidArgument(f"seconds{of} are {len(costs)} numbers; give 1 to {_MOST_ENTRIES}")
        if not self.retrieval and not costs.all():
            raise InvalidArgument(f"seconds{of} is 0.0; it must be above 0: only retrieval may take no time")
        if self.found is not None:
            if not self.retrieval:
                raise InvalidArgument(f"found{of} is given, but the level is not retrieval; leave it out")
            _require_sum(f"found{of}", self.found)

    def availability(self, longest: int) -> NDArray[np.float64]:
        """float64[longest + 1], entry j: the probability of a draft of at least j tokens if ``longest`` are requested."""
        return np.ones(longest + 1) if self.found is None else _tails(self.found, longest)

    def draft_lengths(self, tokens: int) -> NDArray[np.float64]:
        """float64[tokens + 1], entry j: the probability of a draft of exactly j tokens if ``tokens`` are requested."""
        return -np.diff(self.availability(tokens), append=0.0)

    def pass_seconds(self, drafted: ArrayLike) -> NDArray[np.float64]:
        """Seconds of a pass that verifies ``drafted`` tokens, 0 or more; float64 in the shape of ``drafted``."""
        costs = np.atleast_1d(np.asarray(self.seconds, np.float64))
        counts = np.asarray(drafted)
        slope = max(costs[-1] - costs[-2], 0.0) if len(costs) > 1 else 0.0
        last = len(costs) - 1
        beyond: NDArray[np.float64] = costs[np.minimum(counts, last)] + slope * np.maximum(counts - last, 0)
        return beyond

    def draft_seconds(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Seconds to draft ``tokens`` tokens, 1 or more, at the bottom: a pass per token, or one call of retrieval."""
        counts = np.asarray(tokens)
        passes: NDArray[np.float64] = np.ones(counts.shape) if self.retrieval else counts.astype(np.float64)
        return passes * self.pass_seconds(0)


@dataclass(frozen=True, slots=True)
class RunDistribution:
    """The distribution of the number of tokens that ``verifier`` accepts from an unbounded draft of ``drafter``.

    Raises InvalidArgument if a value is of another type or out of its range.

    Attributes:
        drafter, verifier: names of levels.
        probabilities: entry j is the probability of exactly j tokens. Entry 0 includes drafts that found nothing. The sum is 1.
    """

    drafter: str
    verifier: str
    probabilities: tuple[Probability, ...]

    def __post_init__(self) -> None:
        of = f" of runs from {self.drafter!r} to {self.verifier!r}"
        check_fields(self, of)
        _require_sum(f"probabilities{of}", self.probabilities)

    def reach(self, longest: int) -> NDArray[np.float64]:
        """float64[longest + 1], entry j: the probability that at least j tokens are accepted."""
        return _tails(self.probabilities, longest)


def _tails(probabilities: tuple[float, ...], longest: int) -> NDArray[np.float64]:
    """float64[longest + 1], the probability of j or more. ``probabilities``: of exactly j."""
    tails = np.cumsum(probabilities[::-1])[::-1][: longest + 1]
    return np.pad(tails / tails[0], (0, longest + 1 - len(tails)))


def _require_sum(what: str, entries: tuple[float, ...]) -> None:
    """Raise InvalidArgument unless ``entries`` add up to 1."""
    if not 0 < len(entries) <= _MOST_ENTRIES:
        raise InvalidArgument(Field(what), f" are {len(entries)} numbers; give 1 to {_MOST_ENTRIES}")
    if abs(math.fsum(entries) - 1) > _SUM_TOLERANCE:
        raise InvalidArgument(Field(what), f" add up to {math.fsum(entries):.9g}; they must add up to 1")
