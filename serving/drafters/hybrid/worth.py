"""Whether to draft more than is there already: what further drafts have added so far, against the time they take."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suffolk.serving.drafters.hybrid.combined_gain import alone, together
from suffolk.serving.drafters.hybrid.promises import CLASSES, class_of

_TELLING = np.array([1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.1])
"""How much what further drafts add beside each class of promises tells of what they would bring alone."""
_STRENGTH, _LEAN = 3.0, 4.0
"""Drafts' worth of belief in what is given at first, and, beside each class, in what all classes together say: with less of it one
unlucky draft of a good network ended its use."""
_DECAY = 0.99
_LATEST = 0.1
"""How much the latest draft's time counts at least."""
_VERIFICATION = 0.15
"""Tokens' time that it takes to verify what was drafted, or as much as drafting it took if that is less."""
_RETRY, _DEAR_RETRY = 50, 200
"""After so many refusals they are drafted all the same, so that a wrong opinion does not last for ever; the second where they take
more than half of what drafting may."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to draft more for a request, and why.

    Attributes:
        pays: the answer; retried: yes although it should not pay, to see whether the opinion still holds; declined: it was asked
            for and there was none.
        promised: tokens that drafts promise which are there; gain: tokens that further ones should add; cost: tokens that plain
            decoding would bring in the time of drafting and verifying them, 0 where that is not known.
    """

    pays: bool
    retried: bool
    promised: float
    gain: float
    cost: float
    declined: bool = False


class Worth:
    """Learns what further drafts add, by what those promise that are there already, and what they take.

    Not thread-safe.

    Attributes:
        asked, skipped: how often more was drafted for a request, and was not.
    """

    def __init__(self, prior: float = 1.0) -> None:
        """``prior``: tokens that they are taken to add where nothing is there, until more is known."""
        self.asked = self.skipped = 0
        self._gained = np.zeros(CLASSES)
        self._seen = np.zeros(CLASSES)
        self._tried = np.zeros(CLASSES, np.bool_)
        self._alone, self._told = _STRENGTH * prior, _STRENGTH
        self._seconds, self._costs = 0.0, 0
        self._refusals = 0

    @property
    def cost(self) -> float:
        """Seconds that more drafts have taken of late, for a request; 0 until that is known."""
        return self._seconds

    def gain(self, promised: float) -> float:
        """Tokens that further drafts should add to such that promise ``promised``: as they did beside this class, which leans on
        what all classes together say they would bring alone."""
        at = class_of(promised)
        beside = float(together(self._alone / self._told, promised)) - promised
        return float((self._gained[at] + _LEAN * beside) / (self._seen[at] + _LEAN))

    def judge(self, promised: float, token_seconds: float, most_seconds: float = math.inf) -> Verdict:
        """Whether to draft more for a request, whose token costs ``token_seconds`` in plain decoding (0: not known); counts.

        ``most_seconds``: what drafting may take. More than half of it is for those alone that have paid so far: a wrong hope
        would end all drafting for a while.
        """
        gain, cost = self.gain(promised), self._seconds / token_seconds if token_seconds else 0.0
        cost += min(cost, _VERIFICATION)
        at = class_of(promised)
        affordable = 2 * self._seconds <= most_seconds or self._gained.sum() >= cost * self._seen.sum() > 0
        if (
            affordable and not self._tried[at] and promised < cost
        ):  # what was seen beside other promises is no reason not to
            gain, self._tried[at] = max(gain, cost), True
        self._refusals = 0 if gain >= cost and affordable else self._refusals + 1
        retried = self._refusals > (_RETRY if affordable else _DEAR_RETRY)
        if retried:
            self._refusals = 0
        pays = (affordable and gain >= cost) or retried
        self.asked += pays
        self.skipped += not pays
        return Verdict(pays, retried, promised, gain, cost)

    def learn_cost(self, seconds: float) -> None:
        """A request's share of what drafting took. The first ten count alike: one long draft had made all after it look dear."""
        self._costs += 1
        self._seconds += max(_LATEST, 1 / self._costs) * (seconds - self._seconds)

    def learn(self, promised: float, gained: int) -> None:
        """They added ``gained`` tokens to what drafts that promised ``promised`` would have brought."""
        at = class_of(promised)
        self._gained[at] = _DECAY * self._gained[at] + gained
        self._seen[at] = _DECAY * self._seen[at] + 1
        self._alone = _DECAY * self._alone + _TELLING[at] * alone(promised + gained, promised)
        self._told = _DECAY * self._told + _TELLING[at]
