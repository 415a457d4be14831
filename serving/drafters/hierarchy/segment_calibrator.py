"""Calibrates the draft probabilities of a hierarchy's top level to acceptance probabilities of the target."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.confidence import CHAIN_PRIOR, Confidence
from suffolk.serving.drafters.hierarchy.draft_segment import DraftSegment, Floats
from suffolk.serving.drafters.neural.coupled_sampling import needs_distributions
from suffolk.serving.engine.loop.drafter import Proposal, SampledChain
from suffolk.serving.engine.sampling.settings import SamplingSettings


class SegmentCalibrator:
    """Learns from what the target accepts of a segment under the request's ``settings``. Not thread-safe.

    The scores of tokens that were sampled with their distributions depend on depth alone, as ``SampledChain`` demands.
    """

    def __init__(self, retrieval: bool) -> None:
        """``retrieval``: the top level is retrieval, whose probabilities are calibrated already."""
        self._retrieval = retrieval
        self._by_prob, self._by_depth = Confidence(), Confidence()

    def scores(self, segment: DraftSegment, settings: SamplingSettings) -> Floats:
        """float64[n], the probability that the path to each token is accepted."""
        chances = segment.draft_probs
        if not self._retrieval:
            depths = np.arange(1, len(segment) + 1)
            chances = self._confidence(settings).chances(_probs(segment, settings), depths, settings.temperature > 0)
        return np.asarray(np.cumprod(np.clip(chances, 0.0, 1.0)), np.float64)

    def proposal(self, segment: DraftSegment, settings: SamplingSettings, source: int) -> Proposal:
        """``segment`` as a draft for the target."""
        size = len(segment)
        tree = DraftTree(
            np.asarray(segment.tokens, np.int32),
            np.arange(-1, size - 1, dtype=np.int32),
            self.scores(segment, settings).astype(np.float32),
            np.full(size, source, np.uint32),
        )
        return tree if segment.distribution is None or not size else SampledChain(tree, segment.distribution)

    def learn(self, segment: DraftSegment, settings: SamplingSettings, tokens: npt.NDArray[np.int32]) -> int:
        """Learn from the target's ``tokens`` behind ``segment``; return how many tokens were accepted."""
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
