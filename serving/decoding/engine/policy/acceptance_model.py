"""Estimates how many drafted tokens the target accepts. No other module estimates this."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from suffolk.serving.decoding.engine.policy.constants import MEMORY, OVERLAP, PRIOR_WEIGHT, RECOVERY

_CLASSES = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Borders between the ranges of expected tokens in ``AddedTokens``."""


class Estimate:
    """A mean of recent values and a prior. Not thread-safe."""

    __slots__ = ("_sum", "_weight", "prior")

    def __init__(self, prior: float = 0.0) -> None:
        self.prior = prior
        self._sum = self._weight = 0.0

    @property
    def value(self) -> float:
        return (PRIOR_WEIGHT * self.prior + self._sum) / (PRIOR_WEIGHT + self._weight)

    def add(self, value: float, weight: float = 1.0) -> None:
        """Add values whose sum is ``value`` and whose weight is ``weight``. Earlier values fade."""
        self._sum = MEMORY * self._sum + value
        self._weight = MEMORY * self._weight + weight

    def fade(self, memory: float) -> None:
        """Multiply the weight of all values by ``memory``."""
        self._sum, self._weight = memory * self._sum, memory * self._weight


class AcceptanceModel:
    """Corrects calibrated scores by observed acceptance. Not thread-safe.

    A score gets two factors: one for its drafter, and one for its drafter in its request. The first is needed because trees with
    too high scores are verified more often than other trees. The second is needed because a source may not fit a text.
    """

    def __init__(self) -> None:
        self._ratios: defaultdict[str, Estimate] = defaultdict(lambda: Estimate(1.0))
        self._in_requests: defaultdict[int, defaultdict[str, Estimate]] = defaultdict(
            lambda: defaultdict(lambda: Estimate(1.0))
        )
        self._tokens, self._idle = Estimate(0.0), Estimate(1.0)
        self._steps: dict[int, tuple[Estimate, Estimate]] = {}

    def scale(self, drafter: str, request_id: int) -> float:
        """The factor in 0..1 that turns scores of ``drafter`` for this request into acceptance probabilities."""
        return min(1.0, self._ratios[drafter].value) * min(1.0, self._in_requests[request_id][drafter].value)

    def learn(self, drafter: str, request_id: int, expected: float, accepted: float, verified: bool) -> None:
        """Learn from a draft.

        ``expected``: sum of the scores of the draft's verified nodes. ``accepted``: number of these nodes that were accepted. If
        no node was ``verified``, the corrections fade instead.
        """
        overall, here = self._ratios[drafter], self._in_requests[request_id][drafter]
        if not verified:
            overall.fade(RECOVERY)
            here.fade(RECOVERY)
            return
        here.add(accepted, min(1.0, overall.value) * expected)
        overall.add(accepted, expected)

    def in_a_step(self, request_id: int) -> tuple[float, float]:
        """Mean accepted tokens per step of a request, and the share of its steps without accepted tokens.

        Before the request's first step, these are the values of all requests.
        """
        tokens, idle = self._steps.get(request_id, (self._tokens, self._idle))
        return tokens.value, idle.value

    def count(self, request_id: int, accepted: int) -> None:
        """Learn from a step of a request in which ``accepted`` tokens were accepted."""
        here = self._steps.setdefault(request_id, (Estimate(self._tokens.value), Estimate(self._idle.value)))
        for tokens, idle in (here, (self._tokens, self._idle)):
            tokens.add(accepted)
            idle.add(accepted == 0)

    def release(self, request_id: int) -> None:
        """Forget an ended request."""
        self._in_requests.pop(request_id, None)
        self._steps.pop(request_id, None)


class AddedTokens:
    """Estimates the tokens that a source adds to an existing draft. Not thread-safe.

    It keeps one estimate for each range of the existing draft's expected tokens.
    """

    def __init__(self, prior: float) -> None:
        """``prior``: tokens expected of the source if there is no other draft."""
        self._alone = Estimate(prior)
        self._gains = [Estimate() for _ in range(len(_CLASSES) + 1)]

    def gain(self, expected: float) -> float:
        """Expected number of tokens that the source adds to a draft of ``expected`` tokens. The prior assumes overlap."""
        alone, gain = self._alone.value, self._gains[bisect_right(_CLASSES, expected)]
        gain.prior = max(alone - OVERLAP * expected, (1 - OVERLAP) * alone)
        return gain.value

    def learn(self, expected: float, gained: int, alone: int) -> None:
        """Learn that the source added ``gained`` tokens to a draft of ``expected`` tokens.

        Without the existing draft, ``alone`` tokens of the source would have been accepted.
        """
        self._gains[bisect_right(_CLASSES, expected)].add(gained)
        self._alone.add(alone)
