"""One level of a hierarchy and what its passes cost; the law of how many tokens of a draft one level accepts from another."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.loop.checks import listed, number

_MOST_ENTRIES = 1 << 16
_MOST_SECONDS = 1e6
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Level:
    """One level: a model, or a datastore that is searched.

    Attributes:
        name: not empty.
        seconds: what a pass costs; above 0, up to 1e6. A number: whatever the pass verifies. Several: entry d is for a pass that
            verifies d drafted tokens, so that entry 0 is one token's plain decoding; beyond the last the cost grows as between the
            last two. For retrieval a number, 0 included: one call, however many tokens it drafts.
        retrieval: whether it is searched and not run; it then drafts at the bottom, and verifies nothing.
        found: of retrieval, entry j is the probability that it finds exactly j tokens, the last that it finds so many or more; they
            add up to 1. None where it always finds as many as it is asked for.

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """

    name: str
    seconds: float | tuple[float, ...]
    retrieval: bool = False
    found: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InvalidArgument(f"name of a level is {self.name!r}; it must be a text that is not empty")
        if not isinstance(self.retrieval, bool):
            raise InvalidArgument(f"retrieval of level {self.name} is {self.retrieval!r}; it must be true or false")
        what = f"seconds of level {self.name}"
        several = isinstance(self.seconds, tuple | list)
        entries = listed(what, self.seconds, "numbers") if several else (self.seconds,)
        if several and self.retrieval:
            raise InvalidArgument(
                f"{what} are {len(entries)} in a list; retrieval has a single number, whatever it drafts"
            )
        if not 0 < len(entries) <= _MOST_ENTRIES:
            raise InvalidArgument(f"{what} are {len(entries)} numbers; give 1 to {_MOST_ENTRIES}")
        costs = tuple(number(what, entry) for entry in entries)
        for cost in costs:
            if not (0 < cost <= _MOST_SECONDS or (self.retrieval and cost == 0)):
                least = "0 or more" if self.retrieval else "above 0"
                raise InvalidArgument(f"{what} is {cost}; it must be {least}, and at most {_MOST_SECONDS:.0f}")
        object.__setattr__(self, "seconds", costs if several else costs[0])
        if self.found is not None:
            if not self.retrieval:
                raise InvalidArgument(f"found of level {self.name} is given, and it is no retrieval; leave it out")
            object.__setattr__(self, "found", _law(f"found of level {self.name}", self.found))

    def there(self, longest: int) -> NDArray[np.float64]:
        """The probability that it drafts at least j tokens if ``longest`` are asked of it; float64 of shape (longest + 1,), entry j
        for j tokens."""
        return np.ones(longest + 1) if self.found is None else _tails(self.found, longest)

    def handed(self, tokens: int) -> NDArray[np.float64]:
        """The law of how many tokens it hands up at the bottom if ``tokens`` are asked; float64 of shape (tokens + 1,)."""
        return -np.diff(self.there(tokens), append=0.0)

    def pass_seconds(self, drafted: ArrayLike) -> NDArray[np.float64]:
        """Seconds of one pass that verifies so many ``drafted`` tokens (0 or more each); float64 of their shape."""
        costs = np.atleast_1d(np.asarray(self.seconds, np.float64))
        counts = np.asarray(drafted)
        slope = max(costs[-1] - costs[-2], 0.0) if len(costs) > 1 else 0.0
        last = len(costs) - 1
        beyond: NDArray[np.float64] = costs[np.minimum(counts, last)] + slope * np.maximum(counts - last, 0)
        return beyond

    def draft_seconds(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Seconds to draft so many ``tokens`` (1 or more each) at the bottom, float64 of their shape: a plain pass for each, or one
        call of retrieval."""
        counts = np.asarray(tokens)
        passes: NDArray[np.float64] = np.ones(counts.shape) if self.retrieval else counts.astype(np.float64)
        return passes * self.pass_seconds(0)


@dataclass(frozen=True, slots=True)
class RunLaw:
    """How many tokens of a draft ``verifier`` accepts before the first that it does not, where ``drafter`` drafts as far as it can.

    Attributes:
        drafter, verifier: names of levels.
        probabilities: entry j is that of exactly j tokens; from 0 tokens (also where nothing was found) to the most ever seen. They
            add up to 1.

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """

    drafter: str
    verifier: str
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        what = f"probabilities of runs from {self.drafter!r} to {self.verifier!r}"
        object.__setattr__(self, "probabilities", _law(what, self.probabilities))

    def reach(self, longest: int) -> NDArray[np.float64]:
        """The probability that at least j tokens are accepted; float64 of shape (longest + 1,), entry j for j tokens."""
        return _tails(self.probabilities, longest)


def _tails(law: tuple[float, ...], longest: int) -> NDArray[np.float64]:
    """The probability of j or more by ``law``, whose entry j is that of exactly j; float64 of shape (longest + 1,)."""
    tails = np.cumsum(law[::-1])[::-1][: longest + 1]
    return np.pad(tails / tails[0], (0, longest + 1 - len(tails)))


def _law(what: str, value: object) -> tuple[float, ...]:
    """``value`` as probabilities that add up to 1; raises InvalidArgument if it is something else."""
    entries = tuple(number(what, entry) for entry in listed(what, value, "numbers"))
    if not 0 < len(entries) <= _MOST_ENTRIES:
        raise InvalidArgument(f"{what} are {len(entries)} numbers; give 1 to {_MOST_ENTRIES}")
    if bad := [entry for entry in entries if not 0 <= entry <= 1]:
        raise InvalidArgument(f"{what} include {bad[0]}; each must be between 0 and 1")
    if abs(math.fsum(entries) - 1) > _SUM_TOLERANCE:
        raise InvalidArgument(f"{what} add up to {math.fsum(entries):.9g}; they must add up to 1")
    return entries
