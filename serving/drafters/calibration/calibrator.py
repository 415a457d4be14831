"""Learns acceptance probabilities of retrieved nodes online (csrc/drafting/calibrator.h)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.reliability import Reliability


@dataclass(frozen=True, slots=True)
class Prior:
    """Prior log-odds of acceptance: linear in log(match length), log-odds of the share, log(parent's count) and log(depth)."""

    constant: float
    match: float
    share: float
    count: float
    depth: float


class Calibrator:
    """P(node accepted | parent accepted) by match length, share, count and depth, for one source. Not thread-safe.

    A fine table leans on a coarse one (match length and share), which leans on the prior; old evidence fades with ``decay``
    per observed tree. ``score`` and ``learn`` raise InvalidArgument for what is no tree, and then learn nothing.

    Attributes:
        reliability: its reliability diagram.
    """

    def __init__(self, prior: Prior, decay: float = 0.999) -> None:
        self._native = _native.Calibrator(prior.constant, prior.match, prior.share, prior.count, prior.depth, decay)
        self.reliability = Reliability(decay)

    def score(self, tree: DraftTree) -> DraftTree:
        """Return ``tree`` with the probability that each node's path is accepted as its scores, in the same order.

        A child's never exceeds its parent's.
        """
        scores = self._native.score(tree.tokens, tree.parents, tree.counts, tree.match_length, tree.match_count)
        return DraftTree(
            tree.tokens, tree.parents, scores, tree.sources, tree.counts, tree.match_length, tree.match_count
        )

    def learn(self, tree: DraftTree, tokens: npt.NDArray[np.int32]) -> None:
        """Learn from the target's ``tokens`` behind ``tree``: from nodes whose parent was accepted."""
        chances, taken = self._native.learn(
            tree.tokens, tree.parents, tree.counts, tree.match_length, tree.match_count, tokens
        )
        self.reliability.add(chances, taken.astype(np.bool_))

    def state(self) -> npt.NDArray[np.float64]:
        """float64[n], the learned state, for ``restore``."""
        return np.asarray(self._native.state(), np.float64)

    def restore(self, state: npt.NDArray[np.float64]) -> None:
        """Load a state. Raises InvalidArgument for a malformed one."""
        self._native.restore(state)
