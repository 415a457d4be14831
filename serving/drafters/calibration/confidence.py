"""From a drafter's own probability of a token to the probability that the target takes it: learned while decoding.

A drafter's probabilities are near those that its tokens are accepted (EAGLE-2, Li et al. 2024, section 4.1), but not the same, and
not on the scale of other sources.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.calibration.reliability import Reliability

Floats = npt.NDArray[np.float64]

CHAIN_PRIOR = 0.6
"""A drawn token's chance until more is known, the same for all tokens: a chain's scores must not tell which were drawn."""
_EDGES = np.array([0.003, 0.01, 0.03, 0.07, 0.15, 0.25, 0.4, 0.55, 0.7, 0.82, 0.9, 0.95, 0.98, 0.995])
_DEPTHS = np.array([2, 3, 5])
_STRENGTH = 20.0
"""Observations that the drafter's own probability is worth."""
_LIKELY = 4
_MIDDLES = (np.append(_EDGES, 1.0)[_LIKELY:] + _EDGES[_LIKELY - 1 :]) / 2
"""Of the classes of probabilities from this one on, 0.07: how often they are kept tells how far the drafter is to be believed."""
_BELIEF = 4.0
"""Tokens' worth of belief that it keeps what it promises: one that is certain and never right would else be heard for long."""
_DECAY = 0.999


class Confidence:
    """P(child accepted | parent accepted) by the drafter's probability, depth, and whether tokens are drawn greedily or with
    shared noise. What was not seen leans on the drafter's own probability, and that on how far it keeps its promises at large. Old
    evidence fades per call of ``learn``, one for each level of a tree that the target reached. Not thread-safe.

    Attributes:
        reliability: how true its predictions came.
    """

    def __init__(self) -> None:
        self._tallies = np.zeros((2, 2, len(_DEPTHS) + 1, len(_EDGES) + 1))  # hits, and how many were seen
        self.reliability = Reliability(_DECAY)

    def chances(self, own: Floats, depths: npt.NDArray[np.int64], sampled: bool) -> Floats:
        """float64 of the shape of ``own``, the drafter's probabilities; ``depths`` broadcasts against it."""
        cells = _cells(own, depths, sampled)
        hits, seen = (tally[cells] for tally in self._tallies)
        return np.asarray((hits + _STRENGTH * self._kept(sampled) * own) / (seen + _STRENGTH), np.float64)

    def learn(self, own: Floats, depths: npt.NDArray[np.int64], sampled: bool, taken: npt.NDArray[np.bool_]) -> None:
        """Count candidates whose parents were accepted, and which of them were taken: arrays of one length; ``depths`` may be one
        for all."""
        known = np.isfinite(own)  # what is no number says nothing
        own, depths, taken = own[known], np.broadcast_to(depths, own.shape)[known], taken[known]
        self.reliability.add(np.minimum(self.chances(own, depths, sampled), 1.0), taken)
        self._tallies *= _DECAY
        cells = _cells(own, depths, sampled)
        np.add.at(self._tallies[0], cells, taken)
        np.add.at(self._tallies[1], cells, 1.0)

    def state(self) -> Floats:
        """float64[n], all that was learned, for ``restore``."""
        return np.array(self._tallies.ravel())

    def restore(self, state: Floats) -> None:
        """Take over what another one learned. Raises InvalidArgument for what is no such state."""
        if state.shape != (self._tallies.size,):
            raise InvalidArgument(f"calibration: a state has {state.size} entries; it must have {self._tallies.size}")
        hits, seen = tallies = state.reshape(self._tallies.shape).copy()
        if not bool(np.all(np.isfinite(tallies)) and np.all(hits >= 0) and np.all(hits <= seen)):
            raise InvalidArgument(
                "calibration: a state has an entry that is not finite, below 0, or more hits than were seen"
            )
        self._tallies = tallies

    def _kept(self, sampled: bool) -> float:
        """The share of what the drafter's likely candidates promised that came true, at most 1."""
        hits, seen = self._tallies[:, int(sampled), :, _LIKELY:]
        return min(1.0, float((hits.sum() + _BELIEF) / ((seen * _MIDDLES).sum() + _BELIEF)))


def _cells(own: Floats, depths: npt.NDArray[np.int64], sampled: bool) -> tuple[npt.NDArray[np.intp], ...]:
    level = np.broadcast_to(np.searchsorted(_DEPTHS, depths, side="right"), own.shape)
    return np.full(own.shape, int(sampled)), level, np.searchsorted(_EDGES, own, side="right")
