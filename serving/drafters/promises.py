"""How far the promises of drafts are kept."""

from __future__ import annotations

import numpy as np

_EDGES = np.array([0.1, 0.25, 0.5, 1.0, 2.0, 4.0])
"""Classes of promises, in tokens."""
_BELIEF = 4.0
"""Tokens' worth of belief in the promises of each class."""
_DECAY = 0.99


class Promises:
    """Learns what drafts bring, by what they promise: the sum of their nodes' chances. The more they promise the less of it they
    keep, as the highest of many chances are the most overrated. Not thread-safe."""

    def __init__(self) -> None:
        self._promised = np.zeros(len(_EDGES) + 1)
        self._kept = np.zeros(len(_EDGES) + 1)

    def expected(self, promised: float) -> float:
        """Tokens that drafts which promise ``promised`` should bring, that many at most."""
        at = _class_of(promised)
        return promised * float(min(1.0, (self._kept[at] + _BELIEF) / (self._promised[at] + _BELIEF)))

    def learn(self, promised: float, brought: int) -> None:
        """They brought ``brought`` tokens."""
        at = _class_of(promised)
        self._promised[at] = _DECAY * self._promised[at] + promised
        self._kept[at] = _DECAY * self._kept[at] + brought


def _class_of(promised: float) -> int:
    return int(np.searchsorted(_EDGES, promised, side="right"))
