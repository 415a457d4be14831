"""Drafts by a recurrent head: the likeliest beams as a tree, or a chain drawn from the head's own law."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.by_class import ByClass
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.neural.redrafter.config import BeamConfig
from suffolk.serving.drafters.neural.redrafter.draft_state import Read, Text
from suffolk.serving.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.drafters.neural.redrafter.steps import Steps, measure_steps
from suffolk.serving.engine.loop.draft_failures import DraftFailures
from suffolk.serving.engine.loop.drafter import DraftRequest, Proposal
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.cost_model import CostModel


class RedrafterDrafter:
    """Drafts behind the target's last hidden state, all that it keeps of a request (``FeatureDrafter``).

    Beams are searched and not drawn, so they are verified by ``match``, for which any tree is exact; at a temperature above 0 they
    are searched by the head's scores with the target's own noise. Under verification ``rejection`` at a temperature above 0 the
    draft is one chain, drawn from the head's law: the test min(1, p / q) on the best of several beams would change the text's
    law. Not thread-safe.
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
        """``slots``: requests at once, for the measurement of the head's steps; ``costs``: theirs, None to measure them now."""
        self._config = config or BeamConfig()
        self.layers = head.layers
        self._vocab_size = target.vocab_size
        costs = costs or measure_steps(head, slots * self._config.width)
        self._steps = Steps(head, target.eos_ids, self._config, costs)
        self._read: dict[int, Read] = {}
        self._texts: dict[int, Text] = {}
        self._calls = 0
        self.missed = DraftFailures("redrafter")

    def calibrate(self, confidence: ByClass[Confidence]) -> None:
        """See ``CalibratedDrafter``."""
        self._steps.confidence = confidence

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        if not len(features):
            return
        read = self._read.get(request_id)
        tokens = len(features) + (0 if read is None else read.tokens)
        self._read[request_id] = Read(tokens, features[-1, 0].clone())  # a view would keep them all

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self._calls += 1
        texts = [self._begin(request) for request in requests]
        self._steps.draft([text for text in texts if text is not None and text.room])
        return [DraftTree.empty() if text is None else text.proposal for text in texts]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        text = self._texts.get(request_id)
        if text is not None and len(text.tree):
            self._steps.learn(text, tokens)

    def release(self, request_id: int) -> None:
        self._read.pop(request_id, None)
        self._texts.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        counters: dict[str, float] = {"calls": self._calls, "passes": self._steps.count}
        return counters | self.missed.stats()

    def close(self) -> None:
        self._read.clear()
        self._texts.clear()

    def _begin(self, request: DraftRequest) -> Text | None:
        """The request's text, its last draft forgotten; None if the features of all its tokens but the last have not come."""
        read, text = self._read.get(request.request_id), self._texts.get(request.request_id)
        if read is None or read.tokens != len(request.tokens) - 1:
            come, size = 0 if read is None else read.tokens, len(request.tokens) - 1
            self.missed.add("Unavailable", f"hidden states of {come} tokens have come, of {size} are needed")
            if text is not None:
                text.forget()
            return None
        if text is None:
            text = self._texts[request.request_id] = Text(request, self._vocab_size, read.feature.device)
        text.begin(request, read.feature, self._config.length)
        return text
