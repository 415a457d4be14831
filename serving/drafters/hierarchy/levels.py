"""The levels that a hierarchy may be made of, with their costs and how often they accept each other's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hierarchy.level import Level, RunDistribution
from suffolk.serving.engine.checks import listed, number

MOST_LEVELS = 256


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels that a hierarchy may be made of. Immutable and thread-safe.

    Attributes:
        levels: from the bottom to the target; 1..256, with different names. A level drafts only for those behind it.
        acceptance: row: drafter, column: verifier; the probability that a drafted token (of retrieval: a found token) is accepted,
            0..1. None: unknown, and the two are never neighbours. Only entries above the diagonal are used.
        runs: distributions of accepted runs, at most one a pair; they replace the pair's rate and include how often nothing is
            found.

    Raises:
        InvalidArgument: a value is of another type, shape or out of its range; a run names no level, or a verifier before its
            drafter.
    """

    levels: tuple[Level, ...]
    acceptance: tuple[tuple[float | None, ...], ...]
    runs: tuple[RunDistribution, ...] = ()

    def __post_init__(self) -> None:
        levels = listed("levels", self.levels, "levels")
        if not 0 < len(levels) <= MOST_LEVELS:
            raise InvalidArgument(f"levels are {len(levels)}; give 1 to {MOST_LEVELS}, the target last")
        for level in levels:
            if not isinstance(level, Level):
                raise InvalidArgument(f"levels include {level!r}; each must be a Level")
        object.__setattr__(self, "levels", levels)
        if twice := [name for name in self.names if self.names.count(name) > 1]:
            raise InvalidArgument(f"levels are two of the name {twice[0]}; give each a name of its own")
        if self.levels[-1].retrieval:
            raise InvalidArgument(f"level {self.names[-1]} is last, and retrieval; the last one is the target, a model")
        object.__setattr__(self, "acceptance", _rows(self.acceptance, self.names))
        runs = listed("runs", self.runs, "distributions")
        for number_of, run in enumerate(runs):
            self._check(run, runs[:number_of])
        object.__setattr__(self, "runs", runs)

    @property
    def names(self) -> list[str]:
        """The names of the levels, in their order."""
        return [level.name for level in self.levels]

    def rates(self) -> NDArray[np.float64]:
        """``acceptance`` as float64 of shape (levels, levels), NaN where it is not known."""
        return np.array(self.acceptance, np.float64)

    def reach(self, drafter: int, verifier: int, longest: int) -> NDArray[np.float64]:
        """float64[longest + 1], entry j: the probability that level ``drafter`` drafts j tokens or more and ``verifier`` accepts j.

        Both levels by number; ``longest`` tokens are asked for. NaN where nothing is known of the pair.
        """
        for run in self.runs:
            if (run.drafter, run.verifier) == (self.levels[drafter].name, self.levels[verifier].name):
                return run.reach(longest)
        rate = self.acceptance[drafter][verifier]
        accepted = np.full(longest + 1, np.nan if rate is None else rate) ** np.arange(longest + 1)
        return self.levels[drafter].availability(longest) * accepted

    def _check(self, run: object, before: tuple[object, ...]) -> None:
        """Raise InvalidArgument if ``run`` is not of two of these levels, or one ``before`` is of the same two."""
        if not isinstance(run, RunDistribution):
            raise InvalidArgument(f"runs include {run!r}; each must be a RunDistribution")
        if unknown := [name for name in (run.drafter, run.verifier) if name not in self.names]:
            raise InvalidArgument(
                f"runs name {unknown[0]!r}, which is no level; the levels are {', '.join(self.names)}"
            )
        pair = f"runs from {run.drafter} to {run.verifier}"
        if self.names.index(run.drafter) >= self.names.index(run.verifier):
            raise InvalidArgument(
                f"{pair}: the verifier must come behind its drafter; change them, or the order of the levels"
            )
        if any(
            (run.drafter, run.verifier) == (other.drafter, other.verifier)
            for other in before
            if isinstance(other, RunDistribution)
        ):
            raise InvalidArgument(f"{pair} are given twice; leave one out")


def _rows(value: object, names: list[str]) -> tuple[tuple[float | None, ...], ...]:
    """Check that ``value`` has a rate for each two of ``names``. Raises InvalidArgument otherwise."""
    rows = [
        listed(f"row {place} of acceptance", row, "rates")
        for place, row in enumerate(listed("acceptance", value, "rows"))
    ]
    for what, size in [
        ("acceptance", len(rows)),
        *((f"row {place} of acceptance", len(row)) for place, row in enumerate(rows)),
    ]:
        if size != len(names):
            raise InvalidArgument(f"{what} has {size} entries; it must have one for each of the {len(names)} levels")
    return tuple(
        tuple(
            _rate(entry, f"acceptance of {drafter} by {verifier}") for verifier, entry in zip(names, row, strict=True)
        )
        for drafter, row in zip(names, rows, strict=True)
    )


def _rate(entry: object, what: str) -> float | None:
    if entry is None:
        return None
    rate = number(what, entry)
    if not 0 <= rate <= 1:
        raise InvalidArgument(f"{what} is {rate}; it must be between 0 and 1, or null where it is not known")
    return rate
