"""The early-exit drafter grows trees with the target's first layers, on the target's own cache."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.neural.draft_state import DraftState
from suffolk.serving.decoding.drafters.neural.tree_bounds import BOUNDS, TreeBounds
from suffolk.serving.decoding.drafters.neural.tree_drafter import ModelTreeDrafter
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.costs.cost_measurement import measure
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy


class EarlyExitDrafter(ModelTreeDrafter):
    """Grows trees with the target's first layers. Not thread-safe, and only for the loop that owns the cache.

    It reads the target's cached keys and values. It writes its own rows after them, which the target's next pass overwrites.
    """

    name = "early-exit"
    source = source_bits("early-exit")

    def __init__(self, model: Target, bounds: TreeBounds = BOUNDS, costs: CostModel | None = None) -> None:
        """``model``: the target's first layers (``shallow``, ``load_exit``).

        ``costs``: costs of their passes; None to measure them now, which takes seconds.
        """
        super().__init__(model, model.vocab_size, bounds, ExpansionPolicy(costs or measure(model)), "early exit")

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        self._cache = cache

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        slots = [request.slot for request in requests]
        lengths = self._cache.lengths[slots]
        try:
            return super().propose(requests)
        finally:
            self._cache.lengths[slots] = lengths  # the target overwrites the rows of the tree

    def _open(self, request: DraftRequest, requests: int) -> DraftState | None:
        state = self._states.get(request.request_id)
        if state is None:
            state = DraftState(request, request.slot, self._vocab_size, self._model.device)
            self._states[request.request_id] = state
        state.begin(request, int(self._cache.lengths[request.slot]))
        return state if self._fits(state) else None

    def _fits(self, state: DraftState) -> bool:
        size, rows = len(state.request.tokens), self._cache.capacity
        if self._model.context_length is not None:
            state.deepest = min(state.deepest, self._model.context_length - size)
        needed = size + self._bounds.max_depth * self._bounds.width
        if needed > rows:
            self.failures.add("ResourceExhausted", f"a request needs {needed} cache rows with a tree, and has {rows}")
        return needed <= rows
