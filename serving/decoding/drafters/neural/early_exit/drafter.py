"""The early-exit drafter grows trees with the target's first layers, on the target's own cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.neural.draft_state import DraftState
from suffolk.serving.decoding.drafters.neural.early_exit.config import ExitConfig, require_exit
from suffolk.serving.decoding.drafters.neural.early_exit.model import ExitHead, ExitLayer, shallow
from suffolk.serving.decoding.drafters.neural.head_folder import naming
from suffolk.serving.decoding.drafters.neural.tree_bounds import BOUNDS, TreeBounds
from suffolk.serving.decoding.drafters.neural.tree_drafter import ModelTreeDrafter
from suffolk.serving.decoding.drafters.neural.weights import FILE, fit, read_tensors
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.costs.cost_measurement import measure
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy


class EarlyExitDrafter(ModelTreeDrafter):
    """Grows trees with the target's first layers. Not thread-safe, and only for the loop that owns the cache.

    It reads the target's cached keys and values. It writes its own rows after them. The target's next pass overwrites these rows.
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
            state = DraftState(request, request.slot, self._vocab_size, self.model.device)
            self._states[request.request_id] = state
        state.begin(request, int(self._cache.lengths[request.slot]))
        return state if self._fits(state) else None

    def _fits(self, state: DraftState) -> bool:
        size, rows = len(state.request.tokens), self._cache.capacity
        if self.model.context_length is not None:
            state.deepest = min(state.deepest, self.model.context_length - size)
        needed = size + self._bounds.max_depth * self._bounds.width
        if needed > rows:
            self.failures.add("ResourceExhausted", f"a request needs {needed} cache rows with a tree, and has {rows}")
        return needed <= rows


def load(context: LoadContext, options: Options) -> EarlyExitDrafter:
    """Load the drafter for its entry in the registry. Raises the errors of ``load_exit`` and ``require_exit``."""
    target = context.require_target()
    if "head" in options:
        (folder,) = options["head"]
        model, label = load_exit(folder, target), folder.name
    else:
        layers = options["exit_layers"]
        require_exit("exit_layers", layers, target.layers)
        model, label = shallow(target, layers), str(layers)
    drafter = EarlyExitDrafter(model, costs=find_costs(model, context.slots).costs)
    context.calibrate(drafter, label)
    return drafter


def load_exit(folder: Path, target: Target) -> Target:
    """The target's first layers with the trained exit in ``folder``.

    Raises:
        NotFound: a file is missing.
        Corruption: config.json or the weights are damaged, or they do not fit each other.
        Unsupported: the exit is for another model.
    """
    with naming(folder):
        head = ExitHead(target, ExitConfig.load(folder))
        head.load_state_dict(fit(read_tensors(folder / FILE), head.state_dict()))
    return with_exit(target, head)


def with_exit(target: Target, head: ExitHead) -> Target:
    """The target's first layers, with ``head`` after the last of them."""
    return shallow(target, head.config.layers, lambda layer: ExitLayer(layer, head))
