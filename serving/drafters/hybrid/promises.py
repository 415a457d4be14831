"""How far the promises of drafts are kept."""

from __future__ import annotations

import numpy as np

_EDGES = np.array([0.1, 0.25, 0.5, 1.0, 2.0, 4.0])
CLASSES = len(_EDGES) + 1
_BELIEF = 3.0
"""Drafts' worth of belief in what a promise says, until more is known."""
_DECAY = 0.99


def class_of(promised: float) -> int:
    """The class, 0..CLASSES - 1, of drafts that promise so many tokens."""
    return int(np.searchsorted(_EDGES, promised, side="right"))


class Promises:
    """Learns what drafts bring, as far as they are verified, by what they promise: the sum of their nodes' chances. The more they
    promise the less of it they keep, as the highest of many chances are the most overrated, and the longest paths are cut. Not
    thread-safe."""

    def __init__(self) -> None:
        self._promised = np.zeros(CLASSES)
        self._kept = np.zeros(CLASSES)

    def expected(self, promised: float) -> float:
        """Tokens that drafts which promise ``promised`` should bring, that many at most."""
        at, belief = class_of(promised), _BELIEF * promised
        told = float(self._promised[at] + belief)
        return promised * min(1.0, float(self._kept[at] + belief) / told) if told else 0.0

    def learn(self, promised: float, brought: int) -> None:
        """They brought ``brought`` tokens."""
        at = class_of(promised)
        self._promised[at] = _DECAY * self._promised[at] + promised
        self._kept[at] = _DECAY * self._kept[at] + brought
