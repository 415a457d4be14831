"""One request as a hierarchy sees it: its place in the levels' caches, what it draws with, and the draft of this step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree, Source
from suffolk.serving.drafters.calibration.confidence import CHAIN_PRIOR, Confidence
from suffolk.serving.drafters.hierarchy.draft_segment import NOTHING, DraftSegment, Floats
from suffolk.serving.drafters.hierarchy.drawing import FreshUniforms, Samplers
from suffolk.serving.drafters.hierarchy.thrift import Thrift
from suffolk.serving.engine.loop.drafter import DraftRequest, Proposal, SampledChain


class Text:
    """A request from its first draft on. Not thread-safe.

    Attributes:
        slot: its place in the caches of all levels.
        request: as of the last ``begin``; ``room``: tokens that a draft may have.
        is_drawn: whether drafts are drawn at random and tell their laws: where that is how they are verified.
        samplers, uniforms: what its levels draw with, once they have drawn.
        rounds: of the top level in this step.
        handed: what the top level has handed to the target in this step.
        is_cut: whether a level's logits were no numbers in this step, so that less is handed.
    """

    request: DraftRequest

    def __init__(self, slot: int, levels: int) -> None:
        self.slot = slot
        self.samplers: Samplers | None = None
        self.uniforms: list[FreshUniforms | None] = [None] * levels
        self.room = self.rounds = 0
        self.handed = NOTHING
        self.is_cut = False
        self._believed: Belief | None = None
        self._thrift: Thrift | None = None

    def begin(self, request: DraftRequest, room: int, believed: Belief, thrift: Thrift | None) -> None:
        """A new step; ``thrift``: whether a further round pays, None if all are made."""
        self.request, self.room, self.rounds, self.handed, self.is_cut = request, room, 0, NOTHING, False
        self._believed, self._thrift = believed, thrift

    @property
    def is_sampled(self) -> bool:
        return self.request.settings.temperature > 0

    @property
    def is_drawn(self) -> bool:
        return self.is_sampled and self.request.settings.verification == "rejection"

    def goes_on(self, got: DraftSegment) -> bool:
        """Whether the top level should collect more behind ``got``."""
        if self._thrift is None or self._believed is None:
            return True
        value = float(self._believed.scores(self, got)[-1])
        return self._thrift.pays(value, self.request.worth_seconds)


class Belief:
    """From what the top level holds of its own tokens to the chance that the target accepts them. Not thread-safe."""

    def __init__(self, searched: bool) -> None:
        """``searched``: the top level is retrieval, whose chances are calibrated."""
        self._searched = searched
        self._followed, self._drawn = Confidence(), Confidence()

    def scores(self, text: Text, handed: DraftSegment) -> Floats:
        """float64[n], the chance that the path to each token is accepted; by depth alone for tokens that were drawn."""
        if self._searched:
            return _along(handed.own)
        depths = np.arange(1, len(handed) + 1)
        confidence = self._drawn if text.is_drawn else self._followed
        return _along(confidence.chances(self._own(text, handed), depths, text.is_sampled))

    def proposal(self, text: Text, source: Source) -> Proposal:
        """What ``text.handed`` is for the target."""
        handed = text.handed
        size = len(handed)
        tree = DraftTree(
            np.asarray(handed.tokens, np.int32),
            np.arange(-1, size - 1, dtype=np.int32),
            self.scores(text, handed).astype(np.float32),
            np.full(size, source, np.uint8),
        )
        if handed.law is None or not size:
            return tree
        return SampledChain(tree, handed.law)

    def learn(self, text: Text, tokens: npt.NDArray[np.int32]) -> int:
        """The target's ``tokens`` followed the last draft: how many of it they confirm."""
        handed = text.handed
        looked = min(len(handed), len(tokens))
        agree = np.asarray(handed.tokens[:looked]) == tokens[:looked]
        accepted = looked if agree.all() else int(np.argmin(agree))
        seen = min(accepted + 1, looked)
        if seen and not self._searched:
            confidence = self._drawn if text.is_drawn else self._followed
            own, depths = self._own(text, handed)[:seen], np.arange(1, seen + 1)
            confidence.learn(own, depths, text.is_sampled, agree[:seen])
        return accepted

    @staticmethod
    def _own(text: Text, handed: DraftSegment) -> Floats:
        return np.full(len(handed), CHAIN_PRIOR) if text.is_drawn else handed.own


def _along(chances: Floats) -> Floats:
    """The chance of the path to each token, from that of each behind the one before."""
    return np.asarray(np.cumprod(np.clip(chances, 0.0, 1.0)), np.float64)
