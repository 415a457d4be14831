"""Trees from a causal language model: its likeliest continuations, or those that its own noisy draw would choose.

Grown by the probability of each path (EAGLE-2, Li et al. 2024, section 4; best first as SpecExec, Svirschevski et al. 2024), in
passes over all requests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.neural.draft_state import LEFT_OVER, DraftState, add_children
from suffolk.serving.drafters.neural.stateful_drafter import StatefulDrafter
from suffolk.serving.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.engine.loop.draft_budget import mean_value
from suffolk.serving.engine.loop.prefill_budget import PrefillBudget
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.model.tree_layout import TreeLayout
from suffolk.serving.engine.policy.expansion_policy import ExpansionPolicy


class TreeDrafter(StatefulDrafter[DraftState]):
    """Grows trees for requests whose tokens are in ``_cache``. Each pass must be worth its time. Not thread-safe.

    At a temperature above 0 the candidates are the best of the model's scores with the target's own noise (``keyed_noise.py``), so
    that both draw the same token more often.
    """

    _cache: KVCache
    """Keys and values of the texts; ``lengths`` are advanced by what is read."""

    def __init__(
        self, model: Target, vocab_size: int, bounds: TreeBounds, expansion: ExpansionPolicy, label: str, slots: int = 0
    ) -> None:
        """``vocab_size``: of the ids that may be drafted. ``label``, ``slots``: as in ``StatefulDrafter``."""
        super().__init__(label, slots)
        self._model = model
        self._vocab_size = min(vocab_size, model.vocab_size)
        self._bounds = bounds
        self._expansion = expansion
        self._confidence = Confidence()

    def calibrate(self, confidence: Confidence) -> None:
        """See ``CalibratedDrafter``."""
        self._confidence = confidence

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        text = self._states.get(request_id)
        if text is not None and len(text.tree):
            text.learn(tokens, self._confidence, self._expansion)
            self._keep(text, tokens)

    def _keep(self, text: DraftState, tokens: npt.NDArray[np.int32]) -> None:
        """Keep in the cache what ``tokens`` make part of the text."""

    def _grow(self, texts: Sequence[DraftState]) -> None:
        """Grow the tree of each of ``texts`` that can be read to its end now, pass by pass while that pays."""
        if not texts:
            return
        most = sum(text.request.budget.model_seconds for text in texts) - self._seconds(len(texts), texts)
        growing = self._read(texts)
        for _ in range(self._bounds.max_depth - 1):
            growing, rows = self._extend(growing, most)
            most -= self._seconds(rows, growing)

    def _read(self, texts: Sequence[DraftState]) -> list[DraftState]:
        """Bring texts up to date, a budget's tokens in all; those that are get their first nodes."""
        budget = PrefillBudget()
        parts = [(text, rows) for text in texts if len(rows := text.read(budget))]
        reading, layouts = [text for text, _ in parts], [rows for _, rows in parts]
        slots = [text.slot for text in reading]
        begin = time.perf_counter()
        logits = self._forward(slots, layouts, [int(not text.pending) for text in reading])
        seconds = time.perf_counter() - begin
        if max(map(len, layouts)) > LEFT_OVER:  # of a prompt few rows give logits: it says nothing of trees
            self._prefill_seconds += seconds
        else:
            self._learn_cost(slots, layouts, seconds)
        self._cache.keep(slots, [np.arange(len(rows)) for rows in layouts])
        ready = [text for text in reading if not text.pending]
        add_children(ready, [text.root() for text in ready], logits, self._bounds.children, self._confidence)
        return ready

    def _extend(self, texts: Sequence[DraftState], most_seconds: float) -> tuple[list[DraftState], int]:
        """One pass for the best leaves of all trees; the texts whose trees have grown, none where a pass does not pay, and its
        rows."""
        if not texts:
            return [], 0
        bounds = self._bounds
        leaves = [
            text.tree.best_leaves(bounds.width, min(bounds.max_depth, text.deepest), kept=text.request.max_nodes)
            for text in texts
        ]
        values = np.concatenate([text.tree.values[nodes] for text, nodes in zip(texts, leaves, strict=True)])
        if not len(values):
            return [], 0
        value_seconds = mean_value(text.request.budget for text in texts)
        worth = self._expansion.choose(values, value_seconds, self._contexts(texts), most_seconds)
        parts = np.split(worth, np.cumsum([len(nodes) for nodes in leaves])[:-1])
        kept = [(text, nodes[part]) for text, nodes, part in zip(texts, leaves, parts, strict=True) if part.any()]
        growing, chosen = [text for text, _ in kept], [nodes for _, nodes in kept]
        if not growing:
            return [], 0
        layouts = [text.lay_out(nodes) for text, nodes in zip(growing, chosen, strict=True)]
        slots, begin = [text.slot for text in growing], time.perf_counter()
        logits = self._forward(slots, layouts, [len(layout) for layout in layouts])
        self._learn_cost(slots, layouts, time.perf_counter() - begin)
        for text, nodes in zip(growing, chosen, strict=True):
            text.have_read(nodes)
        add_children(growing, chosen, logits, bounds.children, self._confidence)
        return growing, sum(map(len, chosen))

    def _forward(self, slots: list[int], layouts: list[TreeLayout], wanted: list[int]) -> torch.Tensor:
        logits = self._model.forward(self._cache, slots, layouts, wanted).logits[:, : self._vocab_size]
        self._model.synchronize()
        self._passes += 1
        return logits

    def _learn_cost(self, slots: list[int], layouts: list[TreeLayout], seconds: float) -> None:
        self._expansion.learn_cost(sum(map(len, layouts)), self._cache.lengths[slots], seconds)

    def _seconds(self, rows: int, texts: Sequence[DraftState]) -> float:
        """What a pass of ``rows`` rows for ``texts`` should take."""
        return self._expansion.costs.time(rows, len(texts), float(self._contexts(texts).mean())) if rows else 0.0

    def _contexts(self, texts: Sequence[DraftState]) -> npt.NDArray[np.int64]:
        return self._cache.lengths[[text.slot for text in texts]]
