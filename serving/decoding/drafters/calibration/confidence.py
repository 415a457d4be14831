"""Maps a neural drafter's own probabilities to acceptance probabilities, learned online.

A drafter's probabilities are close to acceptance probabilities (EAGLE-2, Li et al. 2024, section 4.1), but not equal.
Calibration makes them comparable with other sources' probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.errors import Field, InvalidArgument

BINS = 10
_ROUNDING = 1e-3
"""Tolerance: predictions are in single precision."""
_FADED = 1e-300
"""Tolerance: decayed sums are rounded."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Predictions in one tenth of 0..1: their mean, the share that came true, and their decayed number."""

    predicted: float
    measured: float
    weight: float


class Reliability:
    """Predictions and outcomes by tenths of 0..1. They decay per call of ``add``. Not thread-safe."""

    def __init__(self, decay: float = 1.0, native: _native.Reliability | None = None) -> None:
        """``native``: the diagram of a calibrator in C++. The calibrator adds its own predictions to it."""
        self._native = _native.Reliability(decay) if native is None else native

    def add(self, predicted: npt.NDArray[np.floating], taken: npt.NDArray[np.bool_]) -> None:
        """Add predicted probabilities, in 0..1. ``taken``: which of them came true. Both arrays have one length."""
        self._native.add(predicted.astype(np.float64), taken.astype(np.uint8))

    @property
    def _sums(self) -> Floats:
        """float64[3, BINS]; rows: sum of predictions, sum of outcomes, number."""
        return np.array(self._native.sums)

    def bars(self) -> list[Bar]:
        """The tenths that have predictions, in ascending order."""
        return [
            Bar(predicted / seen, taken / seen, seen) for predicted, taken, seen in self._sums.T.tolist() if seen > 0
        ]

    @property
    def weight(self) -> float:
        """The decayed number of predictions."""
        return float(self._sums[2].sum())

    def error(self, least: float = 0.0) -> float:
        """The expected calibration error of predictions of at least ``least``; 0 without predictions.

        ``least`` is rounded down to a tenth.
        """
        sums = self._sums[:, int(least * BINS) :]
        total = float(sums[2].sum())
        return float(np.abs(sums[0] - sums[1]).sum()) / total if total else 0.0

    def state(self) -> Floats:
        """float64[3 * BINS], the state for ``restore``."""
        return self._sums.ravel()

    def restore(self, state: Floats) -> None:
        """Load a state. Raises InvalidArgument if it is malformed."""
        if state.shape != (3 * BINS,):
            raise InvalidArgument(f"reliability has {state.size} numbers; it must have {3 * BINS}")
        sums = state.reshape(3, BINS).copy()
        if not bool(np.all(np.isfinite(sums) & (sums >= 0) & (sums[:2] <= sums[2] * (1 + _ROUNDING) + _FADED).all(0))):
            raise InvalidArgument(
                "reliability has a number that is not finite, below 0, or more outcomes than predictions"
            )
        self._native.sums = sums.tolist()


Floats = npt.NDArray[np.float64]

CHAIN_PRIOR = 0.6
"""Prior acceptance probability of every token of a sampled chain. It is constant, because scores must not depend on the tokens."""
_EDGES = np.array([0.003, 0.01, 0.03, 0.07, 0.15, 0.25, 0.4, 0.55, 0.7, 0.82, 0.9, 0.95, 0.98, 0.995])
_DEPTHS = np.array([2, 3, 5])
_STRENGTH = 20.0
"""Strength of the drafter's own probability as a prior, in observations."""
_LIKELY = 4
_MIDDLES = (np.append(_EDGES, 1.0)[_LIKELY:] + _EDGES[_LIKELY - 1 :]) / 2
"""Midpoints of the bins from 0.07 on. The hit rate in these bins scales the drafter's probabilities."""
_BELIEF = 4.0
"""Strength of the prior that the drafter's probabilities are right, in tokens."""
_DECAY = 0.999
"""Factor of old evidence per call of ``learn``."""


class Confidence:
    """P(child accepted | parent accepted) by draft probability, depth, and whether the target samples. Not thread-safe.

    Bins without evidence use the draft probability, scaled by the drafter's overall hit rate.

    Attributes:
        reliability: its reliability diagram.
    """

    def __init__(self) -> None:
        self._tallies = np.zeros((2, 2, len(_DEPTHS) + 1, len(_EDGES) + 1))  # first axis: hits, tokens seen
        self.reliability = Reliability(_DECAY)

    def chances(self, draft_probs: Floats, depths: npt.NDArray[np.int64], sampled: bool) -> Floats:
        """The acceptance probabilities, in the shape of ``draft_probs``. ``depths`` is broadcast to that shape."""
        cells = _cells(draft_probs, depths, sampled)
        hits, seen = (tally[cells] for tally in self._tallies)
        return np.asarray((hits + _STRENGTH * self._kept(sampled) * draft_probs) / (seen + _STRENGTH), np.float64)

    def learn(
        self, draft_probs: Floats, depths: npt.NDArray[np.int64], sampled: bool, taken: npt.NDArray[np.bool_]
    ) -> None:
        """Learn from the candidates of one accepted parent. ``taken``: which of them was accepted.

        The arrays have one length; ``depths`` may be a single depth.
        """
        known = np.isfinite(draft_probs)
        draft_probs, depths, taken = draft_probs[known], np.broadcast_to(depths, known.shape)[known], taken[known]
        self.reliability.add(np.minimum(self.chances(draft_probs, depths, sampled), 1.0), taken)
        self._tallies *= _DECAY
        cells = _cells(draft_probs, depths, sampled)
        np.add.at(self._tallies[0], cells, taken)
        np.add.at(self._tallies[1], cells, 1.0)

    def state(self) -> Floats:
        """float64[n], the state for ``restore``."""
        return np.array(self._tallies.ravel())

    def restore(self, state: Floats) -> None:
        """Load a state. Raises InvalidArgument if it is malformed."""
        if state.shape != (self._tallies.size,):
            raise InvalidArgument(
                Field("calibration"), f": a state has {state.size} entries; it must have {self._tallies.size}"
            )
        hits, seen = tallies = state.reshape(self._tallies.shape).copy()
        if not bool(np.all(np.isfinite(tallies)) and np.all(hits >= 0) and np.all(hits <= seen)):
            raise InvalidArgument(
                Field("calibration"), ": a state has an entry that is not finite, below 0, or more hits than were seen"
            )
        self._tallies = tallies

    def _kept(self, sampled: bool) -> float:
        """Hits of likely candidates, divided by the hits that their draft probabilities predict; at most 1."""
        hits, seen = self._tallies[:, int(sampled), :, _LIKELY:]
        return min(1.0, float((hits.sum() + _BELIEF) / ((seen * _MIDDLES).sum() + _BELIEF)))


def _cells(draft_probs: Floats, depths: npt.NDArray[np.int64], sampled: bool) -> tuple[npt.NDArray[np.intp], ...]:
    level = np.broadcast_to(np.searchsorted(_DEPTHS, depths, side="right"), draft_probs.shape)
    return np.full(draft_probs.shape, int(sampled)), level, np.searchsorted(_EDGES, draft_probs, side="right")


class Nodes(Protocol):
    """The token and the parent of each node; parent -1 is the root."""

    @property
    def tokens(self) -> npt.NDArray[np.integer]: ...
    @property
    def parents(self) -> npt.NDArray[np.integer]: ...


def learn_draft(
    confidence: Confidence, sampled: bool, draft: Nodes, draft_probs: Floats, text: npt.NDArray[np.integer]
) -> list[bool]:
    """Update ``confidence`` from the children of the root and of each accepted node.

    Args:
        sampled: whether the request samples at a temperature above 0.
        draft_probs: float64[nodes], the drafter's probabilities.
        text: the tokens generated after the root.

    Returns:
        Whether the first child was accepted, for the root and for each accepted node.
    """
    node, first = -1, list[bool]()
    for depth, token in enumerate(text.tolist(), 1):
        children = np.flatnonzero(draft.parents == node)
        if not len(children):
            break
        taken = draft.tokens[children] == token
        confidence.learn(draft_probs[children], np.asarray(depth), sampled, taken)
        first.append(bool(taken[0]))
        if not taken.any():
            break
        node = int(children[taken][0])
    return first
