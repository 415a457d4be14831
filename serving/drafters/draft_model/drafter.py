"""Drafts by a smaller language model: its likeliest continuations as a tree, or those that its own noisy draw would choose."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from datastore.draft_tree import DraftTree, Source
from serving.decoding.cost_measurement import measure
from serving.decoding.cost_model import CostModel
from serving.decoding.drafter import DraftRequest
from serving.decoding.target import PREFILL_CHUNK, Target
from serving.decoding.tree_layout import TreeLayout, chain
from serving.drafters.draft_model.config import DraftModelConfig
from serving.drafters.neural.confidence import Confidence
from serving.drafters.neural.pay import Pay
from serving.drafters.neural.text import Text, add_children

log = logging.getLogger(__name__)


class DraftModelDrafter:
    """A tree per request by path probability, grown in passes over all requests; each pass must promise more tokens' worth of time
    than it takes. At a temperature above 0 the candidates are the best of the draft model's scores with the target's own noise
    (``keyed_noise.py``), so that both draw the same token more often. Not thread-safe.
    """

    name = "draft-model"

    def __init__(
        self,
        model: Target,
        vocab_size: int,
        slots: int = 8,
        capacity: int = 4096,
        config: DraftModelConfig | None = None,
        costs: CostModel | None = None,
    ) -> None:
        """Allocates the draft model's cache.

        Args:
            model: the draft model; its token ids must mean what the target's do (``require_same_tokens``).
            vocab_size: the target's; other ids are not drafted.
            slots: requests it drafts for at once; further ones get no drafts.
            capacity: tokens of a request, its largest tree included; longer ones get no drafts from there on.
            costs: of the draft model's passes; None to measure them now, which takes seconds.

        Raises:
            ResourceExhausted: no memory for the cache.
        """
        self._model = model
        self._vocab_size = min(vocab_size, model.vocab_size)
        self._config = config or DraftModelConfig()
        self._cache = model.new_cache(slots, capacity)
        self._pay = Pay(costs or measure(model, slots))
        self._free = list(range(slots))
        self._texts: dict[int, Text] = {}
        self._confidence = Confidence()
        self._calls = self._passes = 0
        self._reading_seconds = 0.0
        self.missed: Counter[str] = Counter()

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        texts = [self._open(request) for request in requests]
        able = [text for text in texts if text is not None and self._fits(text)]
        if able and self._pay.begins(able[0].request.token_seconds, len(able), self._contexts(able)):
            growing = self._read(able)
            while growing:
                growing = self._grow(growing)
        return [
            DraftTree.empty() if text is None else text.tree.best(request.max_nodes, Source.DRAFT_MODEL)
            for request, text in zip(requests, texts, strict=True)
        ]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        text = self._texts.get(request_id)
        if text is None or not len(text.tree):
            return
        for own, depth, taken in text.evidence(tokens):
            self._confidence.learn(own, np.asarray(depth), text.sampled, taken)
            self._pay.learn(bool(taken[0]))
        self._cache.keep([text.slot], [text.kept_rows(tokens)])

    def release(self, request_id: int) -> None:
        text = self._texts.pop(request_id, None)
        if text is not None:
            self._cache.clear(text.slot)
            self._free.append(text.slot)

    def stats(self) -> dict[str, float]:
        counters: dict[str, float] = {"calls": self._calls, "missed": self.missed.total(), "passes": self._passes}
        counters["reading_seconds"] = self._reading_seconds
        return counters | {f"missed {reason}": count for reason, count in self.missed.items()}

    def close(self) -> None:
        for request_id in list(self._texts):
            self.release(request_id)

    def _open(self, request: DraftRequest) -> Text | None:
        """The request's text, its last tree forgotten; None if there is no slot for it."""
        text = self._texts.get(request.request_id)
        if text is None:
            if not self._free:
                self._miss("ResourceExhausted", f"all {self._cache.slots} slots are taken")
                return None
            text = Text(request, self._free.pop(), self._vocab_size, self._model.device)
            self._texts[request.request_id] = text
        cached = min(int(self._cache.lengths[text.slot]), len(request.tokens) - 1)
        self._cache.lengths[text.slot] = cached
        text.begin(request, cached)
        return text

    def _fits(self, text: Text) -> bool:
        tokens = text.request.tokens
        limit = min(self._cache.capacity, self._model.context_length or self._cache.capacity)
        if len(tokens) + self._config.max_depth * self._config.width > limit:
            self._miss("ResourceExhausted", f"a text has {len(tokens)} tokens, and {limit} fit with a tree")
            return False
        return bool(tokens[-text.pending :].max() < self._model.vocab_size)

    def _read(self, texts: Sequence[Text]) -> list[Text]:
        """Bring texts up to date, ``PREFILL_CHUNK`` tokens in all; those that are get their first nodes."""
        budget, parts, wanted = PREFILL_CHUNK, [], []
        reading = []
        for text in texts:
            size = min(text.pending, budget)
            if size:
                budget -= size
                reading.append(text)
                begin = len(text.request.tokens) - text.pending
                parts.append(chain(text.request.tokens[begin : begin + size].astype(np.int64)))
                wanted.append(int(size == text.pending))
        begin_time = time.perf_counter()
        slots = [text.slot for text in reading]
        logits = self._forward(slots, parts, wanted)
        self._cache.keep(slots, [np.arange(len(part)) for part in parts])
        if sum(len(part) for part in parts) > 2 * len(parts) + 16:  # more than what a step left behind
            self._reading_seconds += time.perf_counter() - begin_time
        ready = [text for text, whole in zip(reading, wanted, strict=True) if whole]
        add_children(ready, [text.root() for text in ready], logits, self._config.children, self._confidence)
        return ready

    def _grow(self, texts: Sequence[Text]) -> list[Text]:
        """One pass for the best leaves of all trees; the texts whose trees have grown, none where a pass does not pay."""
        config = self._config
        chosen = [(text, text.tree.best_leaves(config.width, config.max_depth)) for text in texts]
        chosen = [(text, nodes) for text, nodes in chosen if len(nodes)]
        growing = [text for text, _ in chosen]
        value = sum(float(text.tree.values[nodes].sum()) for text, nodes in chosen)
        rows = sum(len(nodes) for _, nodes in chosen)
        if not growing or not self._pay.pays(value, growing[0].request.token_seconds, rows, self._contexts(growing)):
            return []
        layouts = [text.lay_out(nodes) for text, nodes in chosen]
        logits = self._forward([text.slot for text in growing], layouts, [len(layout) for layout in layouts])
        add_children(growing, [nodes for _, nodes in chosen], logits, config.children, self._confidence)
        return growing

    def _forward(self, slots: list[int], layouts: list[TreeLayout], wanted: list[int]) -> torch.Tensor:
        begin = time.perf_counter()
        logits = self._model.forward(self._cache, slots, layouts, wanted).logits[:, : self._vocab_size]
        self._model.synchronize()
        rows = sum(len(layout) for layout in layouts)
        self._passes += 1
        self._pay.learn_cost(rows, self._cache.lengths[slots], time.perf_counter() - begin)
        return logits

    def _contexts(self, texts: Sequence[Text]) -> npt.NDArray[np.int64]:
        return self._cache.lengths[[text.slot for text in texts]]

    def _miss(self, reason: str, message: str) -> None:
        if not self.missed[reason]:
            log.warning("draft model %s: %s; going on without its drafts", self._model.name, message)
        self.missed[reason] += 1
