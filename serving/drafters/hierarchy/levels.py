"""Levels from which a hierarchy may be made: what each costs, and how often they accept each other's tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hierarchy.level import Level, RunLaw
from suffolk.serving.engine.loop.checks import listed, number

MOST_LEVELS = 256


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels from which a hierarchy may be made. Immutable; any number of threads may use it.

    Attributes:
        levels: from the bottom to the top; the last is the target. A level drafts only for those behind it. 1..256 of them, with
            names that differ.
        acceptance: a row for each level as drafter, with an entry for each level as verifier: the probability that a drafted token
            is accepted, 0..1, or None where it is not known, so that the two are never neighbours. Of retrieval it is that of a
            token that was found. Only entries above the diagonal are used.
        runs: laws of accepted runs, which take the place of their pairs' rates, and tell already how often nothing is found; at
            most one a pair.

    Raises:
        InvalidArgument: a value is of another type, shape or out of its range; a law names no level, or a verifier before its
            drafter.
    """

    levels: tuple[Level, ...]
    acceptance: tuple[tuple[float | None, ...], ...]
    runs: tuple[RunLaw, ...] = ()

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
        runs = listed("runs", self.runs, "laws")
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
        """The probability that level ``verifier`` is drafted at least j tokens by level ``drafter`` (both by number) and accepts
        them, where ``longest`` are asked for: float64 of shape (longest + 1,), entry j for j tokens; NaN where nothing is known of
        the pair."""
        for run in self.runs:
            if (run.drafter, run.verifier) == (self.levels[drafter].name, self.levels[verifier].name):
                return run.reach(longest)
        rate = self.acceptance[drafter][verifier]
        accepted = np.full(longest + 1, np.nan if rate is None else rate) ** np.arange(longest + 1)
        return self.levels[drafter].there(longest) * accepted

    def _check(self, run: object, before: tuple[object, ...]) -> None:
        """Raises InvalidArgument if ``run`` is no law of two of these levels, or one of those ``before`` is of the same two."""
        if not isinstance(run, RunLaw):
            raise InvalidArgument(f"runs include {run!r}; each must be a RunLaw")
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
            if isinstance(other, RunLaw)
        ):
            raise InvalidArgument(f"{pair} are given twice; leave one law")


def _rows(value: object, names: list[str]) -> tuple[tuple[float | None, ...], ...]:
    """``value`` as rates, a row and a column for each of ``names``; raises InvalidArgument if it is something else."""
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
