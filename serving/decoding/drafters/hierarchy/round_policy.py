"""Decides how many rounds the top level of a hierarchy drafts."""

from __future__ import annotations

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.policy.acceptance_model import CandidateAcceptance
from suffolk.serving.decoding.engine.policy.constants import MEMORY, SHARE_PRIOR
from suffolk.serving.decoding.engine.policy.expansion_policy import saved_share


class RoundPolicy:
    """Compares the expected tokens of a further round with its time. Learns both while decoding. Not thread-safe."""

    def __init__(self, costs: list[CostModel]) -> None:
        """``costs``: costs of the passes, for each level that is a model."""
        self._costs = costs
        self._acceptance = CandidateAcceptance(SHARE_PRIOR)
        self._seconds = self._tokens = self._rounds = 0.0

    def pays(self, value: float, value_seconds: float) -> bool:
        """Whether one more round is worth its time. ``value``: probability that all tokens drafted so far are accepted."""
        if not value_seconds or not self._rounds:
            return True
        share, length = self._acceptance.value, self._tokens / self._rounds
        gain = share * (1 - share**length) / (1 - share) if share < 1 else length
        return value * gain * value_seconds >= self._seconds / self._rounds

    def learn_rounds(self, rounds: int, tokens: int, seconds: float) -> None:
        """Learn that ``rounds`` rounds of the top level, over all requests, took ``seconds`` and drafted ``tokens``."""
        self._rounds = MEMORY * self._rounds + rounds
        self._tokens = MEMORY * self._tokens + tokens
        self._seconds = MEMORY * self._seconds + seconds

    def learn(self, accepted: int, drafted: int) -> None:
        """Learn that the target accepted ``accepted`` of ``drafted`` tokens. Tokens after the first rejected one do not count."""
        self._acceptance.add(accepted, min(drafted, accepted + 1))

    def saving(self, depth: int, budget: DraftBudget, requests: int, context: int) -> float:
        """The share of decoding time that drafts of ``depth`` tokens are expected to save; 1 if times are not known."""
        if not budget.token_seconds:
            return 1.0
        taken = self._seconds / self._rounds if self._rounds else 0.0
        taken = taken or sum(each.time(requests, requests, float(context)) for each in self._costs) / requests
        seconds = taken + depth * budget.row_seconds
        return saved_share(self._acceptance.chain(depth)[-1:], seconds / budget.token_seconds, budget)

    def prefill_seconds(self, tokens: int) -> float:
        """Expected seconds to prefill ``tokens`` tokens in all levels."""
        return sum(each.time(tokens, 1, tokens / 2) for each in self._costs)
