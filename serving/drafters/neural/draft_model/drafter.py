"""The draft-model drafter: trees from a smaller language model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.neural.draft_state import DraftState
from suffolk.serving.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.drafters.neural.tree_drafter import TreeDrafter
from suffolk.serving.drafters.registry import source_bits
from suffolk.serving.engine.costs.cost_measurement import measure
from suffolk.serving.engine.costs.cost_model import CostModel
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.expansion_policy import ExpansionPolicy
from suffolk.serving.engine.policy.prefill_policy import PrefillPolicy

SOURCE = source_bits("draft-model")

BOUNDS = TreeBounds(max_depth=16)
"""Default bounds: a model that is accepted often is accepted far ahead."""
_SHARE = 0.8
"""Of a draft model's best candidates, how many the target takes, until more is known: models of one family agree about so often."""


class DraftModelDrafter(TreeDrafter):
    """Grows trees with a smaller model and a cache of its own, which keeps accepted nodes. Not thread-safe.

    Attributes:
        model: the draft model.
    """

    name = "draft-model"
    prior_gain = 3.0
    """Tokens that it brings where nothing is retrieved, until more is known."""

    def __init__(
        self,
        model: Target,
        vocab_size: int,
        slots: int = 8,
        capacity: int = 4096,
        bounds: TreeBounds | None = None,
        costs: CostModel | None = None,
    ) -> None:
        """Allocate the draft model's cache.

        Args:
            model: the draft model; its token ids must mean what the target's do (``require_same_tokens``).
            vocab_size: the target's; other ids are not drafted.
            slots: requests it drafts for at once; further ones get no drafts.
            capacity: tokens of a request, its largest tree included; longer ones get no drafts from there on.
            costs: of the draft model's passes; None to measure them now, which takes seconds.

        Raises:
            ResourceExhausted: no memory for the cache.
        """
        expansion = ExpansionPolicy(costs or measure(model, slots), _SHARE)
        super().__init__(model, vocab_size, bounds or BOUNDS, expansion, f"draft model {model.name}", slots)
        self.model = model
        self._cache = model.new_cache(slots, capacity)
        self._prefill = PrefillPolicy()

    @property
    def cache_bytes(self) -> int:
        """Bytes of its cache."""
        return self._cache.nbytes

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        drafts = [self._open(request) for request in requests]
        self._grow(
            [draft for draft in drafts if draft is not None and self._fits(draft) and self._reads(draft, len(requests))]
        )
        return [
            DraftTree.empty() if draft is None else draft.tree.best(request.max_nodes, SOURCE)
            for request, draft in zip(requests, drafts, strict=True)
        ]

    def stats(self) -> dict[str, float]:
        return super().stats() | {"prefill_seconds": self._prefill_seconds, "unread": self._prefill.refused}

    def _keep(self, text: DraftState, tokens: npt.NDArray[np.int32]) -> None:
        self._cache.keep([text.slot], [text.kept_rows(tokens)])

    def _released(self, request_id: int, state: DraftState) -> None:
        self._prefill.release(request_id, len(state.request.tokens) - state.request.prompt_tokens)
        self._cache.clear(state.slot)
        self._free.append(state.slot)

    def _open(self, request: DraftRequest) -> DraftState | None:
        """The request's state at the begin of a step; None if there is no slot for it."""
        draft = self._states.get(request.request_id)
        if draft is None:
            if not self._has_slot():
                return None
            draft = DraftState(request, self._free[-1], self._vocab_size, self.model.device)
            self._free.pop()  # only now: a failed construction takes no slot
            self._states[request.request_id] = draft
        cached = min(int(self._cache.lengths[draft.slot]), len(request.tokens) - 1)
        self._cache.lengths[draft.slot] = cached
        draft.begin(request, cached)
        return draft

    def _reads(self, draft: DraftState, requests: int) -> bool:
        """Whether prefill of the request pays; once yes, always yes."""
        request, size = draft.request, len(draft.request.tokens)
        room = request.settings.max_new_tokens - (size - request.prompt_tokens)
        share = self._expansion.saving(self._bounds.max_depth, request.budget, requests, size)
        seconds = self._expansion.prefill_seconds(draft.pending)
        return self._prefill.reads(request.request_id, share, seconds, room, request.budget)

    def _fits(self, draft: DraftState) -> bool:
        tokens = draft.request.tokens
        deep = self._bounds.max_depth
        limit = self._cache.capacity - deep * self._bounds.width
        if self.model.context_length is not None:
            limit = min(limit, self.model.context_length - deep)
        if len(tokens) > limit:
            self.failures.add("ResourceExhausted", f"a text has {len(tokens)} tokens, and {limit} fit with a tree")
            return False
        highest = int(tokens[-draft.pending :].max())
        if highest >= self.model.vocab_size:
            self.failures.add("Unsupported", f"a text has token {highest}, which {self.model.name} does not know")
            return False
        return True
