"""The ReDrafter drafter drafts the best beams of a recurrent head as a tree, or a sampled chain."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.neural.draft_state import StatefulDrafter
from suffolk.serving.decoding.drafters.neural.redrafter.beam_state import BeamState, ReadPrefix
from suffolk.serving.decoding.drafters.neural.redrafter.config import BeamConfig
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.neural.redrafter.steps import Steps, measure_steps
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, Proposal
from suffolk.serving.decoding.engine.model.target import Target


class RedrafterDrafter(StatefulDrafter[BeamState]):
    """Drafts from the target's last hidden state (``FeatureDrafter``). Not thread-safe.

    Under verification ``match``, beam search gives trees. At a temperature above 0, beams are scored with the target's noise.

    Under ``rejection`` at a temperature above 0, the draft is one chain sampled from the head's distribution. Rejection sampling
    of the best of several beams would change the distribution of the text.
    """

    name = "redrafter"

    def __init__(
        self,
        head: RedrafterHead,
        target: Target,
        slots: int = 8,
        config: BeamConfig | None = None,
        costs: CostModel | None = None,
    ) -> None:
        """``slots``: the most requests at once. ``costs``: costs of the head's steps; None to measure them now."""
        super().__init__("redrafter")
        self._config = config or BeamConfig()
        self.layers = head.layers
        self._vocab_size = target.vocab_size
        costs = costs or measure_steps(head, slots * self._config.width)
        self._steps = Steps(head, target.eos_ids, self._config, costs)
        self._read: dict[int, ReadPrefix] = {}

    def calibrate(self, confidence: Confidence) -> None:
        """See ``CalibratedDrafter``."""
        self._steps.confidence = confidence

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        if not len(features):
            return
        read = self._read.get(request_id)
        tokens = len(features) + (0 if read is None else read.tokens)
        self._read[request_id] = ReadPrefix(tokens, features[-1, 0].clone())  # a view would keep all features in memory

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self._calls += 1
        drafts = [self._begin(request) for request in requests]
        self._steps.draft([draft for draft in drafts if draft is not None and draft.room])
        return [DraftTree.empty() if draft is None else draft.proposal for draft in drafts]

    def observe(self, generated: Generated) -> None:
        for request_id, tokens in generated.items():
            draft = self._states.get(request_id)
            if draft is not None and len(draft.tree):
                self._steps.learn(draft, tokens)

    def release(self, request_id: int) -> None:
        self._read.pop(request_id, None)
        super().release(request_id)

    def stats(self) -> dict[str, float]:
        return super().stats() | {"passes": self._steps.count}

    def close(self) -> None:
        self._read.clear()
        super().close()

    def _begin(self, request: DraftRequest) -> BeamState | None:
        """The request's state at the beginning of a step; None if hidden states are missing."""
        read, draft = self._read.get(request.request_id), self._states.get(request.request_id)
        if read is None or read.tokens != len(request.tokens) - 1:
            received, size = 0 if read is None else read.tokens, len(request.tokens) - 1
            self.failures.add("Unavailable", f"hidden states of {received} tokens have come, {size} are needed")
            if draft is not None:
                draft.forget()
            return None
        if draft is None:
            draft = self._states[request.request_id] = BeamState(request, self._vocab_size, read.feature.device)
        draft.begin(request, read.feature, self._config.length)
        return draft
