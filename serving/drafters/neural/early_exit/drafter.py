"""Drafts by the first layers of the target, on the target's own cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree, Source
from suffolk.serving.drafters.calibration.by_class import ByClass
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.neural.draft_state import Text
from suffolk.serving.drafters.neural.pay import Pay
from suffolk.serving.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.drafters.neural.tree_model import TreeModel
from suffolk.serving.engine.loop.draft_failures import DraftFailures
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.cost_measurement import measure
from suffolk.serving.engine.policy.cost_model import CostModel


class EarlyExitDrafter:
    """Trees from the target's first layers (``tree_model.py``). It reads the keys and values that the target has cached for them,
    and puts its own behind, where the target's next pass overwrites them. Not thread-safe; for the loop that owns the cache.
    """

    name = "early-exit"

    def __init__(self, model: Target, bounds: TreeBounds | None = None, costs: CostModel | None = None) -> None:
        """``model``: the target's first layers (``shallow``, ``load_exit``). ``costs``: of their passes; None to measure them now,
        which takes seconds."""
        self._model = model
        self._bounds = bounds or TreeBounds()
        self._pay = Pay(costs or measure(model))
        self._confidence: ByClass[Confidence] = ByClass(Confidence)
        self._trees: TreeModel | None = None
        self._texts: dict[int, Text] = {}
        self._calls = 0
        self.missed = DraftFailures("early exit")

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        self._trees = TreeModel(self._model, cache, self._model.vocab_size, self._bounds, self._pay, self._confidence)

    def calibrate(self, confidence: ByClass[Confidence]) -> None:
        """See ``CalibratedDrafter``; before ``attach``."""
        self._confidence = confidence

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        trees = self._trees
        assert trees is not None, "attach comes first"
        texts = [self._open(request, trees.cache) for request in requests]
        slots = [text.slot for text in texts]
        lengths = trees.cache.lengths[slots]
        try:
            trees.grow([text for text in texts if self._fits(text, trees.cache)])
        finally:
            trees.cache.lengths[slots] = lengths  # what was put behind is the target's to overwrite
        return [
            text.tree.best(request.most_named, Source.EARLY_EXIT) for request, text in zip(requests, texts, strict=True)
        ]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        text = self._texts.get(request_id)
        if text is not None and len(text.tree) and self._trees is not None:
            self._trees.learn(text, tokens)

    def release(self, request_id: int) -> None:
        self._texts.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        passes = 0 if self._trees is None else self._trees.passes
        counters: dict[str, float] = {"calls": self._calls, "passes": passes}
        return counters | self.missed.stats()

    def close(self) -> None:
        self._texts.clear()

    def _open(self, request: DraftRequest, cache: KVCache) -> Text:
        text = self._texts.get(request.request_id)
        if text is None:
            text = Text(request, request.slot, self._model.vocab_size, self._model.device)
            self._texts[request.request_id] = text
        text.begin(request, int(cache.lengths[request.slot]))
        return text

    def _fits(self, text: Text, cache: KVCache) -> bool:
        if self._model.context_length is not None:
            text.deepest = min(text.deepest, self._model.context_length - len(text.request.tokens))
        needed = len(text.request.tokens) + self._bounds.max_depth * self._bounds.width
        if needed > cache.capacity:
            self.missed.add(
                "ResourceExhausted", f"a request needs {needed} cache rows with a tree, and has {cache.capacity}"
            )
            return False
        return True
