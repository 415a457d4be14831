"""Decides how far a neural drafter extends its draft, pass by pass."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate
from suffolk.serving.decoding.engine.policy.constants import SHARE_PRIOR


class ExpansionPolicy:
    """Compares the tokens that a further pass is expected to add with its time. Not thread-safe.

    The value of a node is the acceptance probability of its path (EAGLE-2, section 4.1). A pass over nodes is expected to add
    this many tokens: the sum of their values, times the share of best candidates that the target accepts.

    Attributes:
        costs: the costs of the drafter's passes; each pass corrects them.
    """

    def __init__(self, costs: CostModel, share: float = SHARE_PRIOR) -> None:
        """``share``: prior share of best candidates that the target accepts."""
        self.costs = costs
        self._acceptance = Estimate(share)

    def pays(self, value: float, value_seconds: float, seconds: float) -> bool:
        """Whether a pass of ``seconds`` is worth its time; True if ``value_seconds`` is 0. ``value``: the sum of the values of
        the pass's nodes."""
        return not value_seconds or value * self._acceptance.value * value_seconds >= seconds

    def choose(
        self,
        values: npt.NDArray[np.float64],
        value_seconds: float,
        contexts: npt.NDArray[np.int64],
        most_seconds: float = math.inf,
    ) -> npt.NDArray[np.bool_]:
        """bool[n], the nodes to expand in one pass of at most ``most_seconds``: the set with the largest gain minus cost.

        Args:
            values: float64[n], value of each node; each takes one row.
            value_seconds: seconds that an accepted token saves; 0 expands all nodes.
            contexts: int64[requests], cached tokens of the requests in the pass.
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
        """The share of decoding time, 0 or more, that chains of up to ``depth`` tokens should save; 1 if times are not known."""
        if not budget.token_seconds:
            return 1.0
        lengths = np.arange(1, depth + 1)
        seconds = self.costs.time(requests, requests, float(context)) / requests + budget.row_seconds
        accepted = np.cumsum(self._acceptance.value**lengths)
        return saved_share(accepted, lengths * seconds / budget.token_seconds, budget)

    def prefill_seconds(self, tokens: int) -> float:
        """Expected seconds to prefill ``tokens`` tokens."""
        return self.costs.time(tokens, 1, tokens / 2)

    def learn(self, accepted: bool) -> None:
        """Learn whether the target accepted the best candidate after an accepted node."""
        self._acceptance.add(accepted)

    def learn_cost(self, rows: int, contexts: npt.NDArray[np.int64], seconds: float) -> None:
        """Learn that a pass took ``seconds``."""
        self.costs.update(rows, len(contexts), float(contexts.mean()), seconds)


def saved_share(accepted: npt.ArrayLike, costs: npt.ArrayLike, budget: DraftBudget) -> float:
    """The share of decoding time that the best of n drafts saves, 0 or more.

    Only steps in which the target accepts no token of other sources count. ``accepted``: float[n], expected tokens of each draft.
    ``costs``: float[n], time of each draft, in tokens of plain decoding.
    """
    accepted = budget.idle * np.asarray(accepted)
    return max(0.0, float(np.max((accepted - budget.idle * np.asarray(costs)) / (1 + budget.others + accepted))))
