"""The draft-model drafter grows trees with a smaller language model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext, Options
from suffolk.serving.decoding.drafters.neural.draft_state import DraftState
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.neural.tree_drafter import ModelTreeDrafter
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.costs.cost_measurement import measure
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import find_costs
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.int8_linear import compress
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy
from suffolk.serving.decoding.engine.policy.prefill_policy import PrefillPolicy

BOUNDS = TreeBounds(max_depth=16)
"""Default bounds. Trees are deep, because often many drafted tokens in a row are accepted."""
_SHARE = 0.8
"""Prior share of a draft model's best candidates that the target accepts: about the agreement of models of one family."""


class DraftModelDrafter(ModelTreeDrafter):
    """Grows trees with a smaller model. Its cache keeps the rows of accepted nodes. Not thread-safe.

    Attributes:
        cache_bytes: bytes of its cache.
    """

    name = "draft-model"
    source = source_bits("draft-model")
    prior_gain = 3.0
    """Prior number of tokens that its draft adds if nothing is retrieved."""

    def __init__(
        self,
        model: Target,
        vocab_size: int,
        slots: int = 8,
        capacity: int = 4096,
        bounds: TreeBounds = BOUNDS,
        costs: CostModel | None = None,
    ) -> None:
        """Allocate the draft model's cache.

        Args:
            model: the draft model. Its token ids must mean the same as the target's (``require_same_tokens``).
            vocab_size: the target's; other ids are not drafted.
            slots: the most requests at once. Further requests get no drafts.
            capacity: the most tokens of a request, its largest tree included. Longer texts get no drafts.
            costs: costs of the draft model's passes; None to measure them now, which takes seconds.

        Raises:
            ResourceExhausted: out of memory for the cache.
        """
        expansion = ExpansionPolicy(costs or measure(model, slots), _SHARE)
        super().__init__(model, vocab_size, bounds, expansion, f"draft model {model.name}", slots)
        self._cache = model.new_cache(slots, capacity)
        self.cache_bytes = self._cache.nbytes
        self._prefill = PrefillPolicy()

    def stats(self) -> dict[str, float]:
        return super().stats() | {"unread": self._prefill.refused}

    def _keep(self, state: DraftState, tokens: npt.NDArray[np.int32]) -> None:
        self._cache.keep([state.slot], [state.kept_rows(tokens)])

    def _released(self, request_id: int, state: DraftState) -> None:
        self._prefill.release(request_id, len(state.request.tokens) - state.request.prompt_tokens)
        self._cache.clear(state.slot)
        self._free.append(state.slot)

    def _open(self, request: DraftRequest, requests: int) -> DraftState | None:
        state = self._states.get(request.request_id)
        if state is None:
            if not self._has_slot():
                return None
            state = DraftState(request, self._free[-1], self._vocab_size, self.model.device)
            self._free.pop()  # only now: a failed construction takes no slot
            self._states[request.request_id] = state
        cached = min(int(self._cache.lengths[state.slot]), len(request.tokens) - 1)
        self._cache.lengths[state.slot] = cached
        state.begin(request, cached)
        return state if self._fits(state) and self._reads(state, requests) else None

    def _reads(self, state: DraftState, requests: int) -> bool:
        """Whether the request's text should be read (``PrefillPolicy``)."""
        request, size = state.request, len(state.request.tokens)
        share = self._expansion.saving(self._bounds.max_depth, request.budget, requests, size)
        seconds = self._expansion.prefill_seconds(state.pending)
        return self._prefill.reads(request.request_id, share, seconds, request.room + 1, request.budget)

    def _fits(self, state: DraftState) -> bool:
        tokens = state.request.tokens
        deep = self._bounds.max_depth
        limit = self._cache.capacity - deep * self._bounds.width
        if self.model.context_length is not None:
            limit = min(limit, self.model.context_length - deep)
        if len(tokens) > limit:
            self.failures.add("ResourceExhausted", f"a text has {len(tokens)} tokens, and {limit} fit with a tree")
            return False
        highest = int(tokens[-state.pending :].max())
        if highest >= self.model.vocab_size:
            self.failures.add("Unsupported", f"a text has token {highest}, which {self.model.name} does not know")
            return False
        return True


def load(context: LoadContext, options: Options) -> DraftModelDrafter:
    """Load the drafter for its entry in the registry. Raises the errors of ``load_draft_model``."""
    name = options["draft_model"]
    drafter = load_draft_model(name, context.require_target(), context.slots, context.capacity, context.dtype)
    context.calibrate(drafter, Path(name).name)
    return drafter


def load_draft_model(
    name: str, target: Target, slots: int = 8, capacity: int = 4096, dtype: str = "auto"
) -> DraftModelDrafter:
    """Load a smaller model of the target's family as a drafter, on the target's device.

    Pass costs come from ``suffolk profile``. If none are stored, a measurement takes seconds.

    ``slots`` and ``capacity``: as in ``DraftModelDrafter``. Raises the errors of ``Target.load`` and ``require_same_tokens``.
    """
    model = Target.load(name, dtype, str(target.device), slots * capacity, exact="near-ties")
    require_same_tokens(model, target)
    compress(model.model)
    return DraftModelDrafter(model, target.vocab_size, slots, capacity, costs=find_costs(model, slots).costs)


def require_same_tokens(model: Target, target: Target) -> None:
    """Raise Unsupported if the tokenizers of both models give a token different ids."""
    if model.tokenizer is None or target.tokenizer is None:
        return
    own, other = model.tokenizer.get_vocab(), target.tokenizer.get_vocab()
    if own == other:
        return
    token = min(
        (token for token in own.keys() | other.keys() if own.get(token) != other.get(token)),
        key=lambda token: min(own.get(token, len(own)), other.get(token, len(other))),
    )
    raise Unsupported(
        f"draft model {model.name} has another tokenizer than {target.name}: token {token!r} is {own.get(token, 'missing')} there "
        f"and {other.get(token, 'missing')} here; use a smaller model of the same family"
    )
