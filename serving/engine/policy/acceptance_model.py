"""Estimates how many drafted tokens the target will accept. No other place does."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from suffolk.serving.engine.policy.constants import (
    MEMORY,
    OVERLAP,
    PRIOR_WEIGHT,
    RATIO_PRIOR,
    RECOVERY,
    SHARE_PRIOR,
)

_CLASSES = np.array([0.1, 0.25, 0.5, 1.0, 2.0, 4.0])
"""Edges of classes of expected tokens."""
Floats = npt.NDArray[np.float64]


class AcceptanceRatio:
    """Accepted over expected tokens, at most 1. Old evidence fades. Not thread-safe."""

    def __init__(self) -> None:
        self._accepted = self._expected = 0.0

    @property
    def value(self) -> float:
        return min(1.0, (RATIO_PRIOR + self._accepted) / (RATIO_PRIOR + self._expected))

    def learn(self, expected: float, accepted: float, verified: bool = True) -> None:
        """A draft was expected to bring ``expected`` tokens and brought ``accepted``, if any of it was ``verified``."""
        memory = MEMORY if verified else RECOVERY
        self._accepted = memory * self._accepted + (accepted if verified else 0.0)
        self._expected = memory * self._expected + (expected if verified else 0.0)


class _Mean:
    """A mean of late, which begins at a prior."""

    def __init__(self, prior: float) -> None:
        self._sum, self._weight = prior * PRIOR_WEIGHT, PRIOR_WEIGHT

    @property
    def value(self) -> float:
        return self._sum / self._weight

    def add(self, value: float) -> None:
        self._sum = MEMORY * self._sum + value
        self._weight = MEMORY * self._weight + 1


class AcceptanceModel:
    """Corrects the calibrated scores of drafters by what became of them: overall, and in each request.

    The trees that look worth verifying are those whose scores are too high. A text unlike a source takes nothing of it. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._drafters: defaultdict[str, AcceptanceRatio] = defaultdict(AcceptanceRatio)
        self._requests: defaultdict[int, dict[str, AcceptanceRatio]] = defaultdict(dict)
        self._means = _Mean(0.0), _Mean(1.0)
        self._of_requests: dict[int, tuple[_Mean, _Mean]] = {}

    def scale(self, drafter: str, request_id: int) -> float:
        """The factor in 0..1 that turns scores of ``drafter`` for this request into acceptance probabilities."""
        return self._drafters[drafter].value * self._request(drafter, request_id).value

    def learn(self, drafter: str, request_id: int, expected: float, accepted: float, verified: bool) -> None:
        """The verified nodes of a draft had scores of ``expected`` in all; ``accepted`` of them were accepted."""
        overall = self._drafters[drafter]
        self._request(drafter, request_id).learn(overall.value * expected, accepted, verified)
        overall.learn(expected, accepted, verified)

    def release(self, request_id: int) -> None:
        """Forget an ended request."""
        self._requests.pop(request_id, None)
        self._of_requests.pop(request_id, None)

    def in_a_step(self, request_id: int) -> tuple[float, float]:
        """Tokens accepted in a step of this request in the mean, and the share of steps with none; at first, of all requests."""
        tokens, idle = self._of_requests.get(request_id, self._means)
        return tokens.value, idle.value

    def count(self, request_id: int, accepted: int) -> None:
        """A step of the request had ``accepted`` tokens."""
        tokens, idle = self._means
        own = self._of_requests.setdefault(request_id, (_Mean(tokens.value), _Mean(idle.value)))
        for of_tokens, of_idle in (own, self._means):
            of_tokens.add(accepted)
            of_idle.add(accepted == 0)

    def _request(self, drafter: str, request_id: int) -> AcceptanceRatio:
        return self._requests[request_id].setdefault(drafter, AcceptanceRatio())


class CandidateAcceptance:
    """The share of a model's best candidates that the target accepts. Not thread-safe."""

    def __init__(self, prior: float = SHARE_PRIOR) -> None:
        self._accepted, self._seen = prior * PRIOR_WEIGHT, PRIOR_WEIGHT

    @property
    def share(self) -> float:
        """In 0..1."""
        return self._accepted / self._seen

    def chain(self, depth: int) -> Floats:
        """float64[depth], the expected accepted length of chains of 1, 2 ... ``depth`` tokens."""
        return np.cumsum(self.share ** np.arange(1, depth + 1))

    def learn(self, accepted: bool) -> None:
        """The target accepted the best candidate, or another token."""
        memory = 1 - (1 - MEMORY) / 5  # a draft has some five candidates
        self._accepted = memory * self._accepted + accepted
        self._seen = memory * self._seen + 1


class AddedTokens:
    """How many tokens a source adds to a draft that is there already, by the tokens expected of that. Not thread-safe."""

    def __init__(self, prior: float) -> None:
        """``prior``: tokens it is expected to bring alone."""
        self._prior = prior
        self._gained = np.zeros(len(_CLASSES) + 1)
        self._seen = np.zeros(len(_CLASSES) + 1)
        self._alone, self._weight = prior * PRIOR_WEIGHT, PRIOR_WEIGHT

    def gain(self, expected: float) -> float:
        """Tokens it should add to a draft of ``expected`` tokens."""
        at = int(np.searchsorted(_CLASSES, expected, side="right"))
        beside = float(combined_gain(self._alone / self._weight, expected)) - expected
        return float((self._gained[at] + PRIOR_WEIGHT * beside) / (self._seen[at] + PRIOR_WEIGHT))

    def learn(self, expected: float, gained: int, alone: int) -> None:
        """It added ``gained`` tokens to a draft of ``expected`` ones; its own draft was right for ``alone`` tokens."""
        at = int(np.searchsorted(_CLASSES, expected, side="right"))
        self._gained[at] = MEMORY * self._gained[at] + gained
        self._seen[at] = MEMORY * self._seen[at] + 1
        self._alone = MEMORY * self._alone + alone
        self._weight = MEMORY * self._weight + 1


def combined_gain(one: npt.ArrayLike, other: npt.ArrayLike) -> Floats:
    """float64, expected tokens of two drafts together: of the longer, and what the shorter adds to it."""
    return np.asarray(np.maximum(one, other) + (1 - OVERLAP) * np.minimum(one, other), np.float64)
