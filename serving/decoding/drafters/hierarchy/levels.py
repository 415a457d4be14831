"""Candidate levels of a hierarchy, with their costs and acceptance rates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Within, check_fields, from_json, read_object
from suffolk.serving.decoding.drafters.hierarchy.level import Level, RunDistribution

MOST_LEVELS = 256
Rate = Annotated[float, Within(0, 1, "between 0 and 1, or null where it is not known")]


def read_rates(path: Path) -> Levels:
    """Read levels from a JSON file with the fields of ``Levels``, ``Level`` and ``RunDistribution``.

    Raises the errors of ``read_object``, and InvalidArgument if a key is missing or unknown, or a value is refused.
    """
    what = f"rates {path}"
    values = read_object(path, what, "see the example of 'suffolk hierarchy plan --help'")
    return from_json(Levels, values, what)


@dataclass(frozen=True, slots=True)
class Levels:
    """Candidate levels of a hierarchy. Immutable and thread-safe.

    Attributes:
        levels: from the bottom to the target; 1..256, with distinct names. A level drafts only for later levels.
        acceptance: the probability that a verifier (column) accepts a drafted token of a drafter (row), 0..1. None: unknown; these
            two levels are never neighbours. Only entries above the diagonal are used.
        runs: distributions of accepted runs, at most one per pair. They replace the pair's rate.

    Raises:
        InvalidArgument: a value is of another type or shape, or out of its range. Or a run names an unknown level, or a verifier
            that stands before its drafter.
    """

    levels: tuple[Level, ...]
    acceptance: tuple[tuple[Rate | None, ...], ...]
    runs: tuple[RunDistribution, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        names, size = self.names, len(self.levels)
        if not 0 < size <= MOST_LEVELS:
            raise InvalidArgument(f"levels are {size}; give 1 to {MOST_LEVELS}, the target last")
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidArgument(Field("levels"), f": two are named {twice[0]}; give each a name of its own")
        if self.levels[-1].retrieval:
            raise InvalidArgument(
                f"level {names[-1]} is last, and it is retrieval; the last level must be the target, a model"
            )
        for place, entries in enumerate((self.acceptance, *self.acceptance)):
            if len(entries) != size:
                what = f"acceptance[{place - 1}]" if place else "acceptance"
                raise InvalidArgument(
                    Field(what), f" has {len(entries)} entries; it must have one for each of the {size} levels"
                )
        pairs = [(run.drafter, run.verifier) for run in self.runs]
        for drafter, verifier in pairs:
            if unknown := [name for name in (drafter, verifier) if name not in names]:
                raise InvalidArgument(f"runs name the unknown level {unknown[0]!r}; the levels are {', '.join(names)}")
            pair = f"runs from {drafter} to {verifier}"
            if names.index(drafter) >= names.index(verifier):
                raise InvalidArgument(
                    f"{pair}: the verifier must come after its drafter; exchange them, or change the order of the levels"
                )
            if pairs.count((drafter, verifier)) > 1:
                raise InvalidArgument(f"{pair} are given twice; leave one out")

    @property
    def names(self) -> list[str]:
        """The names of the levels, in order."""
        return [level.name for level in self.levels]

    def rates(self) -> NDArray[np.float64]:
        """``acceptance`` as float64[levels, levels], NaN for None."""
        return np.array(self.acceptance, np.float64)

    def reach(self, drafter: int, verifier: int, longest: int) -> NDArray[np.float64]:
        """float64[longest + 1], entry j: the probability that at least j of ``longest`` requested tokens are drafted and accepted.

        ``drafter``, ``verifier``: numbers of levels. NaN if the pair's acceptance is unknown.
        """
        for run in self.runs:
            if (run.drafter, run.verifier) == (self.levels[drafter].name, self.levels[verifier].name):
                return run.reach(longest)
        rate = self.acceptance[drafter][verifier]
        accepted = np.full(longest + 1, np.nan if rate is None else rate) ** np.arange(longest + 1)
        return self.levels[drafter].availability(longest) * accepted
