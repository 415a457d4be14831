"""From a drafter's own probability of a token to the probability that the target takes it: learned while decoding.

A drafter's probabilities are near those that its tokens are accepted (EAGLE-2, Li et al. 2024, section 4.1), but not the same, and
not on the scale of other sources.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_EDGES = np.array([0.003, 0.01, 0.03, 0.07, 0.15, 0.25, 0.4, 0.55, 0.7, 0.82, 0.9, 0.95, 0.98, 0.995])
_DEPTHS = np.array([2, 3, 5])
_STRENGTH = 20.0
"""Observations that the drafter's own probability is worth."""


class Confidence:
    """P(child accepted | parent accepted) by the drafter's probability, depth, and whether tokens are drawn greedily or with
    shared noise. Old evidence fades with ``decay`` per tree. Not thread-safe."""

    def __init__(self, decay: float = 0.999) -> None:
        self._decay = decay
        shape = (2, len(_DEPTHS) + 1, len(_EDGES) + 1)
        self._hits, self._seen = np.zeros(shape), np.zeros(shape)

    def chances(self, own: Floats, depths: npt.NDArray[np.int64], sampled: bool) -> Floats:
        """float64 of the shape of ``own``, the drafter's probabilities; ``depths`` broadcasts against it."""
        cells = _cells(own, depths, sampled)
        return (self._hits[cells] + _STRENGTH * own) / (self._seen[cells] + _STRENGTH)

    def learn(self, own: Floats, depths: npt.NDArray[np.int64], sampled: bool, taken: npt.NDArray[np.bool_]) -> None:
        """Count candidates whose parents were accepted, and which of them were taken: arrays of one length."""
        self._hits *= self._decay
        self._seen *= self._decay
        cells = _cells(own, depths, sampled)
        np.add.at(self._seen, cells, 1.0)
        np.add.at(self._hits, cells, taken)


def _cells(own: Floats, depths: npt.NDArray[np.int64], sampled: bool) -> tuple[npt.NDArray[np.intp], ...]:
    level = np.broadcast_to(np.searchsorted(_DEPTHS, depths, side="right"), own.shape)
    return np.full(own.shape, int(sampled)), level, np.searchsorted(_EDGES, own, side="right")
