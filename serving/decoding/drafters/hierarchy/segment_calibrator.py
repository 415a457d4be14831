"""Maps the draft probabilities of a hierarchy's top level to acceptance probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.confidence import CHAIN_PRIOR, Confidence
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import DraftSegment, Floats
from suffolk.serving.decoding.drafters.neural.coupled_sampling import needs_distributions
from suffolk.serving.decoding.engine.loop.drafter import Proposal, SampledChain
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


class SegmentCalibrator:
    """Calibrates segments, and learns from what the target accepts. Not thread-safe.

    The scores of sampled tokens depend only on their depth, as ``SampledChain`` requires.
    """

    def __init__(self, retrieval: bool) -> None:
        """``retrieval``: whether the top level is retrieval. Its probabilities are already calibrated."""
        self._retrieval = retrieval
        self._by_prob, self._by_depth = Confidence(), Confidence()

    def scores(self, segment: DraftSegment, settings: SamplingSettings) -> Floats:
        """float64[n], the probability that each token is accepted with all tokens before it."""
        chances = segment.draft_probs
        if not self._retrieval:
            depths = np.arange(1, len(segment) + 1)
            chances = self._confidence(settings).chances(_probs(segment, settings), depths, settings.temperature > 0)
        return np.asarray(np.cumprod(np.clip(chances, 0.0, 1.0)), np.float64)

    def proposal(self, segment: DraftSegment, settings: SamplingSettings, source: int) -> Proposal:
        """The draft for the target: ``segment`` as a chain, marked with the bits ``source``."""
        size = len(segment)
        tree = DraftTree(
            np.asarray(segment.tokens, np.int32),
            np.arange(-1, size - 1, dtype=np.int32),
            self.scores(segment, settings).astype(np.float32),
            np.full(size, source, np.uint32),
        )
        return tree if segment.distribution is None or not size else SampledChain(tree, segment.distribution)

    def learn(self, segment: DraftSegment, settings: SamplingSettings, tokens: npt.NDArray[np.int32]) -> int:
        """Learn from the ``tokens`` generated after ``segment`` was drafted. Returns the number of accepted tokens."""
        looked = min(len(segment), len(tokens))
        agree = np.asarray(segment.tokens[:looked]) == tokens[:looked]
        accepted = looked if agree.all() else int(np.argmin(agree))
        seen = min(accepted + 1, looked)
        if seen and not self._retrieval:
            probs, depths = _probs(segment, settings)[:seen], np.arange(1, seen + 1)
            self._confidence(settings).learn(probs, depths, settings.temperature > 0, agree[:seen])
        return accepted

    def _confidence(self, settings: SamplingSettings) -> Confidence:
        return self._by_depth if needs_distributions(settings) else self._by_prob


def _probs(segment: DraftSegment, settings: SamplingSettings) -> Floats:
    return np.full(len(segment), CHAIN_PRIOR) if needs_distributions(settings) else segment.draft_probs
