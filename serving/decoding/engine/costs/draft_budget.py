"""The limits of one draft, with the value of an accepted token; and a draft, with its cost and result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class DraftBudget:
    """The largest cost of one draft for one request, and measurements that decide whether the draft is worth its cost.

    Times are the request's share of a step.

    Attributes:
        token_seconds: seconds of one token in plain decoding; 0 if not known.
        row_seconds: seconds of one more row in a pass of the target; 0 if not known.
        model_seconds: limit, in seconds, for passes of the drafter's own model; 0 allows no pass.
        speedup: recent tokens per second with drafts, relative to plain decoding; 1 or more.
        expected: tokens that other sources are expected to give in this step.
        others: mean accepted tokens of other sources per step of the request.
        idle: share of the request's steps in which other sources add no token.
    """

    token_seconds: float = 0.0
    row_seconds: float = 0.0
    model_seconds: float = math.inf
    speedup: float = 1.0
    expected: float = 0.0
    others: float = 0.0
    idle: float = 1.0

    @property
    def value_seconds(self) -> float:
        """Seconds that an accepted token saves: fewer if drafts already make decoding faster."""
        return self.token_seconds / self.speedup

    @property
    def least_score(self) -> float:
        """The acceptance probability below which a node costs more than it saves."""
        return min(1.0, self.row_seconds / self.value_seconds) if self.value_seconds else 0.0


UNLIMITED = DraftBudget()


def mean_value(budgets: Iterable[DraftBudget]) -> float:
    """The mean ``value_seconds`` of one or more requests that share a pass."""
    return fmean(budget.value_seconds for budget in budgets)


@dataclass(slots=True)
class DraftCandidate:
    """One request's draft in a step: its scores, its cost and its result.

    Attributes:
        request_id: the number of the request.
        scores: float32[n], falling: the probability that the path to each node is accepted.
        of_models: bool[n], whether only models proposed the node; None if the drafter has no models that it can leave out.
        seconds: the request's share of the drafting time, without ``model_seconds`` and ``prefill_seconds``.
        model_seconds: the request's share of the time of drafting models' passes.
        prefill_seconds: the request's share of the time of drafting models' prefill.
        verified: how many of the best nodes the target verifies. The planner may only raise this number.
        accepted: verified nodes that the target accepted.
        accepted_of_models: accepted nodes that only models proposed.
    """

    request_id: int
    scores: npt.NDArray[np.float32]
    of_models: npt.NDArray[np.bool_] | None
    seconds: float = 0.0
    model_seconds: float = 0.0
    prefill_seconds: float = 0.0
    verified: int = 0
    accepted: int = 0
    accepted_of_models: int = 0

    def accept(self, path: npt.NDArray[np.int64], accepted: int) -> None:
        """Record that the first ``accepted`` nodes of ``path`` are in the text."""
        self.accepted = accepted
        self.accepted_of_models = self.count_of_models(path[:accepted])

    def count_of_models(self, nodes: slice | npt.NDArray[np.int64]) -> int:
        """How many of ``nodes`` only models proposed."""
        return 0 if self.of_models is None else int(self.of_models[nodes].sum())
