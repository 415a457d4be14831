"""Decides whether a neural drafter reads a request's prompt: if drafts save more in the rest of the answer."""

from __future__ import annotations

from collections import Counter

from suffolk.serving.engine.loop.draft_budget import DraftBudget
from suffolk.serving.engine.policy.acceptance_model import Estimate
from suffolk.serving.engine.policy.constants import ANSWER_TOKENS, PREFILL_MARGIN, PRIOR_WEIGHT
from suffolk.serving.engine.policy.draft_gate import ExplorationTimer


class PrefillPolicy:
    """Weighs prefill against the answer to come. Not thread-safe.

    Attributes:
        refused: requests whose prompts were not read when that was asked first.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._length = Estimate(ANSWER_TOKENS)
        self._timer = ExplorationTimer()
        self._reads: dict[int, bool] = {}
        self._steps: Counter[int] = Counter()

    def reads(self, request_id: int, share: float, seconds: float, room: int, budget: DraftBudget) -> bool:
        """Whether to read a prompt in ``seconds``, for drafts that save this ``share`` of an answer's time; once yes, always yes.

        ``room``: tokens that the answer may still have. To be asked in each step: what other drafts bring is known better then.
        """
        if not budget.token_seconds or self._reads.get(request_id):
            return True
        self._steps[request_id] += 1
        if budget.idle < 1.0 and self._steps[request_id] <= PRIOR_WEIGHT:
            return False  # how far others get alone is worth knowing before a prompt is read
        left = min(room, self._length.value)  # an answer may end at any token alike
        pays = share * left * budget.token_seconds >= PREFILL_MARGIN * seconds
        if not pays and request_id not in self._reads:
            self.refused += 1
            pays = self._timer.refuse()
        self._reads[request_id] = pays
        return pays

    def release(self, request_id: int, tokens: int) -> None:
        """An answer has ended after ``tokens`` tokens."""
        self._reads.pop(request_id, None)
        self._steps.pop(request_id, None)
        self._length.add(tokens)
