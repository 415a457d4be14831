"""The early-exit drafter: the target's first layers, on the target's own cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.neural.draft_state import DraftState
from suffolk.serving.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.drafters.neural.tree_model import TreeModel
from suffolk.serving.drafters.registry import source_bits
from suffolk.serving.engine.costs.cost_measurement import measure
from suffolk.serving.engine.costs.cost_model import CostModel
from suffolk.serving.engine.loop.draft_failures import DraftFailures
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.expansion_policy import ExpansionPolicy

SOURCE = source_bits("early-exit")


class EarlyExitDrafter:
    """Grows trees with the target's first layers (``tree_model.py``). Not thread-safe; for the loop that owns the cache.

    It reads the target's cached keys and values, and writes its own behind them, where the target's next pass overwrites them.
    """

    name = "early-exit"

    def __init__(self, model: Target, bounds: TreeBounds | None = None, costs: CostModel | None = None) -> None:
        """``model``: the target's first layers (``shallow``, ``load_exit``). ``costs``: of their passes; None to measure them now,
        which takes seconds."""
        self._model = model
        self._bounds = bounds or TreeBounds()
        self._expansion = ExpansionPolicy(costs or measure(model))
        self._confidence = Confidence()
        self._trees: TreeModel | None = None
        self._drafts: dict[int, DraftState] = {}
        self._calls = 0
        self.failures = DraftFailures("early exit")

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        self._trees = TreeModel(
            self._model, cache, self._model.vocab_size, self._bounds, self._expansion, self._confidence
        )

    def calibrate(self, confidence: Confidence) -> None:
        """See ``CalibratedDrafter``; before ``attach``."""
        self._confidence = confidence

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        trees = self._trees
        assert trees is not None, "attach comes first"
        drafts = [self._open(request, trees.cache) for request in requests]
        slots = [draft.slot for draft in drafts]
        lengths = trees.cache.lengths[slots]
        try:
            trees.grow([draft for draft in drafts if self._fits(draft, trees.cache)])
        finally:
            trees.cache.lengths[slots] = lengths  # the target overwrites the rows behind
        return [draft.tree.best(request.max_nodes, SOURCE) for request, draft in zip(requests, drafts, strict=True)]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        draft = self._drafts.get(request_id)
        if draft is not None and len(draft.tree) and self._trees is not None:
            self._trees.learn(draft, tokens)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        passes = 0 if self._trees is None else self._trees.passes
        counters: dict[str, float] = {"calls": self._calls, "passes": passes}
        return counters | self.failures.stats()

    def close(self) -> None:
        self._drafts.clear()

    def _open(self, request: DraftRequest, cache: KVCache) -> DraftState:
        draft = self._drafts.get(request.request_id)
        if draft is None:
            draft = DraftState(request, request.slot, self._model.vocab_size, self._model.device)
            self._drafts[request.request_id] = draft
        draft.begin(request, int(cache.lengths[request.slot]))
        return draft

    def _fits(self, draft: DraftState, cache: KVCache) -> bool:
        if self._model.context_length is not None:
            draft.deepest = min(draft.deepest, self._model.context_length - len(draft.request.tokens))
        needed = len(draft.request.tokens) + self._bounds.max_depth * self._bounds.width
        if needed > cache.capacity:
            self.failures.add(
                "ResourceExhausted", f"a request needs {needed} cache rows with a tree, and has {cache.capacity}"
            )
            return False
        return True
