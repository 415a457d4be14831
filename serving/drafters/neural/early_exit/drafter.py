"""The early-exit drafter: the target's first layers, on the target's own cache."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.neural.draft_state import DraftState
from suffolk.serving.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.drafters.neural.tree_drafter import TreeDrafter
from suffolk.serving.drafters.registry import source_bits
from suffolk.serving.engine.costs.cost_measurement import measure
from suffolk.serving.engine.costs.cost_model import CostModel
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.expansion_policy import ExpansionPolicy

SOURCE = source_bits("early-exit")


class EarlyExitDrafter(TreeDrafter):
    """Grows trees with the target's first layers. Not thread-safe; for the loop that owns the cache.

    It reads the target's cached keys and values, and writes its own behind them, where the target's next pass overwrites them.
    """

    name = "early-exit"

    def __init__(self, model: Target, bounds: TreeBounds | None = None, costs: CostModel | None = None) -> None:
        """``model``: the target's first layers (``shallow``, ``load_exit``). ``costs``: of their passes; None to measure them now,
        which takes seconds."""
        expansion = ExpansionPolicy(costs or measure(model))
        super().__init__(model, model.vocab_size, bounds or TreeBounds(), expansion, "early exit")

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        self._cache = cache

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        drafts = [self._open(request) for request in requests]
        slots = [draft.slot for draft in drafts]
        lengths = self._cache.lengths[slots]
        try:
            self._grow([draft for draft in drafts if self._fits(draft)])
        finally:
            self._cache.lengths[slots] = lengths  # the target overwrites the rows behind
        return [draft.tree.best(request.max_nodes, SOURCE) for request, draft in zip(requests, drafts, strict=True)]

    def _open(self, request: DraftRequest) -> DraftState:
        draft = self._states.get(request.request_id)
        if draft is None:
            draft = DraftState(request, request.slot, self._vocab_size, self._model.device)
            self._states[request.request_id] = draft
        draft.begin(request, int(self._cache.lengths[request.slot]))
        return draft

    def _fits(self, draft: DraftState) -> bool:
        size, rows = len(draft.request.tokens), self._cache.capacity
        if self._model.context_length is not None:
            draft.deepest = min(draft.deepest, self._model.context_length - size)
        needed = size + self._bounds.max_depth * self._bounds.width
        if needed > rows:
            self.failures.add("ResourceExhausted", f"a request needs {needed} cache rows with a tree, and has {rows}")
        return needed <= rows
