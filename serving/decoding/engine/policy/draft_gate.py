"""Decides whether to run a source: if its expected tokens save more time than its draft takes, or as a rare trial."""

from __future__ import annotations

import math
from dataclasses import dataclass

from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.policy.acceptance_model import AddedTokens
from suffolk.serving.decoding.engine.policy.constants import TRIALS
from suffolk.serving.decoding.engine.policy.speculation_budget import UsualTime


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Whether a source runs for a request in this step, and why.

    Attributes:
        run: whether the source runs.
        gain: tokens that the source is expected to add.
        cost: usual time to draft and verify, in tokens of plain decoding; 0 if not known.
    """

    run: bool
    gain: float
    cost: float


class DraftGate:
    """Decides for one source whether it runs. Learns its time and its gain while decoding. Not thread-safe.

    A refused source is tried again from time to time, and never given up. Trials take a fixed share of the time, so slow sources
    are tried less often.

    Attributes:
        added: estimates the tokens that the source adds.
        ran: requests for which the source ran, summed over steps.
        skipped: requests for which the source did not run, summed over steps.
    """

    def __init__(self, prior: float) -> None:
        """``prior``: tokens expected of the source if there is no other draft."""
        self.added = AddedTokens(prior)
        self.ran = self.skipped = 0
        self._usual, self._own = UsualTime(), UsualTime()
        self._saved = 0.0  # in tokens of plain decoding, for the next trial

    @property
    def seconds(self) -> float:
        """Usual seconds to draft for one request and to verify the draft; 0 until known."""
        return self._usual.seconds

    def decide(self, budget: DraftBudget) -> GateDecision:
        """Decide whether to run the source for a request, and count the decision."""
        gain, cost, runs = self._weigh(budget, budget.expected, budget.model_seconds)
        return GateDecision(runs, gain, cost)

    def runs(self, budget: DraftBudget, expected: float) -> bool:
        """Decide whether to run a source without a model, beside drafts of ``expected`` tokens, and count the decision."""
        return self._weigh(budget, expected, math.inf)[2]

    def _weigh(self, budget: DraftBudget, expected: float, model_seconds: float) -> tuple[float, float, bool]:
        """The gain and the cost of the source, and whether it runs. Counts the decision."""
        gain, seconds, token_seconds = self.added.gain(expected), self._usual.seconds, budget.token_seconds
        cost = seconds / token_seconds if token_seconds else 0.0
        worth = not token_seconds or gain * budget.value_seconds >= seconds
        pays = worth and self._own.seconds <= model_seconds
        self._saved = min(cost, self._saved + TRIALS) if not pays and model_seconds > 0 else 0.0
        explored = not pays and 0 < cost <= self._saved
        if explored:
            self._saved = 0.0
        runs = pays or explored
        self.ran, self.skipped = self.ran + runs, self.skipped + (not runs)
        return gain, cost, runs

    def learn_cost(self, seconds: float, rows: float = 0.0) -> None:
        """Learn that a draft took ``seconds`` for one request. Verifying the draft takes ``rows`` seconds."""
        self._own.add(seconds)
        self._usual.add(seconds + rows)
