"""Decides whether a neural drafter prefills a prompt: only if its drafts should save more time than the prefill takes."""

from __future__ import annotations

from collections import Counter

from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate
from suffolk.serving.decoding.engine.policy.constants import (
    ANSWER_TOKENS,
    PREFILL_MARGIN,
    PRIOR_WEIGHT,
    TRIALS,
)


class PrefillPolicy:
    """Compares the cost of a prefill with the savings in the rest of the text. Not thread-safe.

    Attributes:
        refused: requests whose prefill was not worth its time at the first decision, even if it was then made as a trial.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._length = Estimate(ANSWER_TOKENS)
        self._saved = 0.0  # in tokens of plain decoding, for a trial of a refused prefill
        self._reads: dict[int, bool] = {}
        self._steps: Counter[int] = Counter()

    def reads(self, request_id: int, share: float, seconds: float, room: int, budget: DraftBudget) -> bool:
        """Whether to prefill a request's prompt. Call this in each step until the result is True; then it stays True.

        Args:
            share: share of decoding time that the drafts are expected to save.
            seconds: cost of the prefill.
            room: tokens that may still be generated.
            budget: limits of the draft; its estimates of other sources improve from step to step.
        """
        if not budget.token_seconds or self._reads.get(request_id):
            return True
        self._steps[request_id] += 1
        if budget.idle < 1.0 and self._steps[request_id] <= PRIOR_WEIGHT:
            return False  # observe only the other sources in the first steps
        left = min(room, self._length.value)  # assumed to be the same, however many tokens were generated
        pays = share * left * budget.token_seconds >= PREFILL_MARGIN * seconds
        if not pays and request_id not in self._reads:
            self.refused += 1
            self._saved += TRIALS * left
            pays = self._saved * budget.token_seconds >= seconds
            self._saved = 0.0 if pays else self._saved
        self._reads[request_id] = pays
        return pays

    def release(self, request_id: int, tokens: int) -> None:
        """Learn that a text has ended after ``tokens`` tokens, and forget the request."""
        self._reads.pop(request_id, None)
        self._steps.pop(request_id, None)
        self._length.add(tokens)
