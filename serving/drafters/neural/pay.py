"""Whether a pass of a drafter promises more than it costs."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.neural.prospect import share_saved
from suffolk.serving.drafters.neural.refusals import Refusals
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.policy.cost_model import CostModel

PRIOR = 0.6
"""The share of its tokens that the target takes, until more is known of a drafter."""
STRENGTH = 10.0
"""Tokens that this is worth."""
_DECAY = 0.995


class Pay:
    """Compares the tokens that a pass can bring with the time it takes. Not thread-safe.

    A pass that asks what follows nodes of value v brings v times the share of best candidates that the target takes, which is
    learned; it is worth that many tokens' time in plain decoding.
    """

    def __init__(self, costs: CostModel, share: float = PRIOR) -> None:
        """``share``: what ``share`` is taken to be until more is known."""
        self.costs = costs
        self._prior = share
        self._hits, self._seen = 0.0, 0.0
        self._refusals = Refusals()

    @property
    def share(self) -> float:
        """Of best candidates, how many the target took of late."""
        return (self._hits + STRENGTH * self._prior) / (self._seen + STRENGTH)

    def pays(self, value: float, token_seconds: float, rows: int, contexts: npt.NDArray[np.int64]) -> bool:
        """Whether a pass of ``rows`` rows for requests with ``contexts`` cached tokens is worth its time; yes if a token's seconds
        are not known, 0."""
        worth = value * self.share * token_seconds
        return not token_seconds or worth >= self.costs.time(rows, len(contexts), float(contexts.mean()))

    def choose(
        self,
        values: npt.NDArray[np.float64],
        token_seconds: float,
        contexts: npt.NDArray[np.int64],
        most_seconds: float = math.inf,
    ) -> npt.NDArray[np.bool_]:
        """Which of the nodes of these ``values``, a row each, to ask what follows them, in one pass of at most ``most_seconds`` for
        requests with ``contexts`` cached tokens: those that bring most above what the pass takes; none if nothing does. All if a
        token's seconds are not known.
        """
        if not token_seconds:
            return np.ones(len(values), np.bool_)
        order = np.argsort(-values, kind="stable")
        worth = np.cumsum(values[order]) * self.share * token_seconds
        rows = np.arange(1, len(values) + 1, dtype=np.float64)
        costs = self.costs.times(rows, len(contexts), float(contexts.mean()))
        gains = np.where(costs <= most_seconds, worth - costs, -np.inf)
        chosen = np.zeros(len(values), np.bool_)
        if len(gains) and gains.max() >= 0:
            chosen[order[: int(np.argmax(gains)) + 1]] = True
        return chosen

    def begins(self, token_seconds: float, rows: int, contexts: npt.NDArray[np.int64]) -> bool:
        """Whether to begin a draft, by its first pass, behind the texts themselves; now and then yes in any case."""
        return self._refusals.begins(self.pays(len(contexts), token_seconds, rows, contexts))

    def saving(self, depth: int, request: DraftRequest, requests: int) -> float:
        """See ``Saving``: by the best chain, each token of which takes a pass, and a row of the target's."""
        lengths = np.arange(1, depth + 1)
        accepted = np.cumsum(self.share**lengths)
        token = self.costs.time(requests, requests, float(len(request.tokens))) / requests + request.row_seconds
        return float(np.max(share_saved(accepted, lengths * token / request.token_seconds, request.already)))

    def reading_seconds(self, tokens: int) -> float:
        """What reading a prompt of so many tokens should take."""
        return self.costs.time(tokens, 1, tokens / 2)

    def learn(self, taken: bool) -> None:
        """Whether the target took the best candidate behind a node of its path."""
        self._hits = _DECAY * self._hits + taken
        self._seen = _DECAY * self._seen + 1

    def learn_cost(self, rows: int, contexts: npt.NDArray[np.int64], seconds: float) -> None:
        """What a pass took."""
        self.costs.update(rows, len(contexts), float(contexts.mean()), seconds)
