"""Decides whether a neural drafter reads a request's prompt: if drafts save more in the rest of the answer."""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from suffolk.serving.engine.policy.constants import ANSWER_TOKENS, PREFILL_MARGIN, PRIOR_WEIGHT
from suffolk.serving.engine.policy.draft_budget import DraftBudget
from suffolk.serving.engine.policy.draft_gate import ExplorationTimer


class Saving(Protocol):
    """What drafts save, and what prefill for them takes."""

    def saving(self, depth: int, budget: DraftBudget, requests: int, context: int) -> float:
        """The share of an answer's time that drafts of up to ``depth`` tokens should save, 0 or more."""
        ...

    def prefill_seconds(self, tokens: int) -> float:
        """What prefill of so many tokens should take."""
        ...


class PrefillPolicy:
    """Weighs prefill against the answer to come. Not thread-safe.

    Attributes:
        refused: requests whose prompts were not read when that was asked first.
    """

    def __init__(self, drafts: Saving, depth: int) -> None:
        """``depth``: of the deepest drafts."""
        self.refused = 0
        self._drafts, self._depth = drafts, depth
        self._tokens, self._answers = ANSWER_TOKENS * PRIOR_WEIGHT, PRIOR_WEIGHT
        self._timer = ExplorationTimer()
        self._reads: dict[int, bool] = {}
        self._steps: Counter[int] = Counter()

    def reads(self, request_id: int, unread: int, length: int, room: int, budget: DraftBudget, requests: int) -> bool:
        """Whether to read the ``unread`` tokens of a request of ``length`` tokens that may get ``room`` more; once yes, always yes.

        To be asked in each step: what other drafts bring is known better with each.
        """
        if not budget.token_seconds or self._reads.get(request_id):
            return True
        self._steps[request_id] += 1
        if budget.idle < 1.0 and self._steps[request_id] <= PRIOR_WEIGHT:
            return False  # how far others get alone is worth knowing before a prompt is read
        left = min(room, self._tokens / self._answers)  # answers end at any token alike
        saved = left * self._drafts.saving(self._depth, budget, requests, length) * budget.token_seconds
        pays = saved >= PREFILL_MARGIN * self._drafts.prefill_seconds(unread)
        if not pays and request_id not in self._reads:
            self.refused += 1
            pays = self._timer.refuse()
        self._reads[request_id] = pays
        return pays

    def release(self, request_id: int, tokens: int) -> None:
        """An answer has ended after ``tokens`` tokens."""
        self._reads.pop(request_id, None)
        self._steps.pop(request_id, None)
        self._tokens += tokens
        self._answers += 1
