"""Decides how far a neural drafter extends its draft, pass by pass."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suffolk.serving.engine.costs.cost_model import CostModel
from suffolk.serving.engine.loop.draft_budget import DraftBudget
from suffolk.serving.engine.policy.acceptance_model import CandidateAcceptance
from suffolk.serving.engine.policy.constants import SHARE_PRIOR


class ExpansionPolicy:
    """Compares the tokens that a pass can bring with its time. Not thread-safe.

    A pass over nodes of value v (acceptance probability of their paths) brings v times the share of best candidates that the
    target accepts (EAGLE-2, section 4.1: values of paths are the drafter's own probabilities).

    Attributes:
        costs: of the drafter's passes, corrected by each.
    """

    def __init__(self, costs: CostModel, share: float = SHARE_PRIOR) -> None:
        """``share``: of best candidates accepted, until it is known."""
        self.costs = costs
        self._acceptance = CandidateAcceptance(share)

    def pays(self, value: float, value_seconds: float, rows: int, contexts: npt.NDArray[np.int64]) -> bool:
        """Whether a pass of ``rows`` rows over nodes of ``value`` in all is worth its time; yes if ``value_seconds`` is 0."""
        gain = value * self._acceptance.value * value_seconds
        return not value_seconds or gain >= self.costs.time(rows, len(contexts), float(contexts.mean()))

    def choose(
        self,
        values: npt.NDArray[np.float64],
        value_seconds: float,
        contexts: npt.NDArray[np.int64],
        most_seconds: float = math.inf,
    ) -> npt.NDArray[np.bool_]:
        """Which nodes of these ``values``, a row each, to expand in one pass of at most ``most_seconds``.

        Those with the largest gain above the cost of the pass; none if nothing pays; all if ``value_seconds`` is 0.
        """
        if not value_seconds:
            return np.ones(len(values), np.bool_)
        order = np.argsort(-values, kind="stable")
        gains = np.cumsum(values[order]) * self._acceptance.value * value_seconds
        rows = np.arange(1, len(values) + 1, dtype=np.float64)
        costs = self.costs.times(rows, len(contexts), float(contexts.mean()))
        net = np.where(costs <= most_seconds, gains - costs, -np.inf)
        chosen = np.zeros(len(values), np.bool_)
        if len(net) and net.max() >= 0:
            chosen[order[: int(np.argmax(net)) + 1]] = True
        return chosen

    def saving(self, depth: int, budget: DraftBudget, requests: int, context: int) -> float:
        """The share of an answer's time that chains of up to ``depth`` tokens should save, 0 or more; 1 if time is not known."""
        if not budget.token_seconds:
            return 1.0
        lengths = np.arange(1, depth + 1)
        seconds = self.costs.time(requests, requests, float(context)) / requests + budget.row_seconds
        return saved_share(self._acceptance.chain(depth), lengths * seconds / budget.token_seconds, budget)

    def prefill_seconds(self, tokens: int) -> float:
        """What prefill of so many tokens should take."""
        return self.costs.time(tokens, 1, tokens / 2)

    def learn(self, accepted: bool) -> None:
        """Whether the target accepted the best candidate behind a node of its path."""
        self._acceptance.add(accepted)

    def learn_cost(self, rows: int, contexts: npt.NDArray[np.int64], seconds: float) -> None:
        """A pass took ``seconds``."""
        self.costs.update(rows, len(contexts), float(contexts.mean()), seconds)


def saved_share(accepted: npt.ArrayLike, costs: npt.ArrayLike, budget: DraftBudget) -> float:
    """The share of an answer's time that the best of several drafts saves, in steps in which other sources bring nothing.

    ``accepted``: float[n], tokens that each brings; ``costs``: float[n], its time in plain tokens. 0 or more.
    """
    accepted = budget.idle * np.asarray(accepted)
    return max(0.0, float(np.max((accepted - budget.idle * np.asarray(costs)) / (1 + budget.others + accepted))))
