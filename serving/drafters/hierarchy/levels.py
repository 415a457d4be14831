"""The levels that a hierarchy may be made of, with their costs and how often they accept each other's tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hierarchy.level import Level, RunDistribution
from suffolk.serving.engine.checked_fields import Within, check_fields, from_json, read_object

MOST_LEVELS = 256
Rate = Annotated[float, Within(0, 1, "between 0 and 1, or null where it is not known")]


def read_rates(path: Path) -> Levels:
    """Read levels from a JSON file with the fields of ``Levels``, ``Level`` and ``RunDistribution``.

    Raises:
        NotFound, Corruption: as ``read_object``.
        InvalidArgument: a key is missing or unknown, or a value is refused.
    """
    what = f"rates {path}"
    values = read_object(path, what, "see the example of 'suffolk hierarchy plan --help'")
    try:
        return from_json(Levels, values, "the document")
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from error


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
    acceptance: tuple[tuple[Rate | None, ...], ...]
    runs: tuple[RunDistribution, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        names, size = self.names, len(self.levels)
        if not 0 < size <= MOST_LEVELS:
            raise InvalidArgument(f"levels are {size}; give 1 to {MOST_LEVELS}, the target last")
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidArgument(f"levels are two of the name {twice[0]}; give each a name of its own")
        if self.levels[-1].retrieval:
            raise InvalidArgument(f"level {names[-1]} is last, and retrieval; the last one is the target, a model")
        for place, entries in enumerate((self.acceptance, *self.acceptance)):
            if len(entries) != size:
                what = f"acceptance[{place - 1}]" if place else "acceptance"
                raise InvalidArgument(
                    f"{what} has {len(entries)} entries; it must have one for each of the {size} levels"
                )
        pairs = [(run.drafter, run.verifier) for run in self.runs]
        for drafter, verifier in pairs:
            if unknown := [name for name in (drafter, verifier) if name not in names]:
                raise InvalidArgument(f"runs name {unknown[0]!r}, which is no level; the levels are {', '.join(names)}")
            pair = f"runs from {drafter} to {verifier}"
            if names.index(drafter) >= names.index(verifier):
                raise InvalidArgument(
                    f"{pair}: the verifier must come behind its drafter; change them, or the order of the levels"
                )
            if pairs.count((drafter, verifier)) > 1:
                raise InvalidArgument(f"{pair} are given twice; leave one out")

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
