"""A model as a level of a hierarchy, with its cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.drafters.hierarchy.draft_segment import LevelQuery
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.loop.slots import common_prefix
from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain

Ids = npt.NDArray[np.int32]


class ModelLevel:
    """Verifies the draft of the level below. At the bottom it drafts token by token. Not thread-safe.

    Attributes:
        name, tokens, temperature: as in ``StackLevel``.
        model: the model.
        costs: the costs of its passes. Each pass updates them.
        passes, rows: passes made and rows read so far, prompts included.
        limit: the length of the longest text that it can read, in tokens.
        cache_bytes: bytes of its cache.
    """

    def __init__(
        self,
        name: str,
        tokens: int,
        model: Target,
        costs: CostModel,
        slots: int = 8,
        capacity: int = 4096,
        temperature: float | None = None,
    ) -> None:
        """Allocate the cache. Raises ResourceExhausted if memory is out."""
        self.name, self.tokens, self.temperature = name, tokens, temperature
        self.model, self.costs = model, costs
        self.passes = self.rows = 0
        self.limit = min(capacity, model.context_length or capacity)
        self._cache = model.new_cache(slots, capacity)
        self.cache_bytes = self._cache.nbytes
        self._read: list[Ids] = [np.empty(0, np.int32)] * slots

    def pending(self, slot: int, tokens: Ids) -> int:
        """The number of ``tokens`` that are not read yet."""
        return len(tokens) - self._shared(slot, tokens)

    def read(self, slot: int, tokens: Ids, most: int = PREFILL_CHUNK) -> None:
        """Read up to ``most`` pending tokens, but not the last one."""
        begin = self._shared(slot, tokens)
        end = min(len(tokens) - 1, begin + most)
        self._forward([slot], [tokens[:end]], [begin], [1])
        self.model.synchronize()

    def seconds_of(
        self, slots: Sequence[int], requests: Sequence[DraftRequest], queries: Sequence[LevelQuery]
    ) -> float:
        """The expected seconds of a pass for these queries."""
        texts, begins = self._parts(slots, requests, queries)
        rows = sum(len(text) - begin for text, begin in zip(texts, begins, strict=True))
        return self.costs.time(rows, len(queries), float(np.mean(begins)))

    def answer(
        self, slots: Sequence[int], requests: Sequence[DraftRequest], queries: Sequence[LevelQuery]
    ) -> list[torch.Tensor]:
        """Make one pass for all queries. Returns for each query float[draft + 1, vocab]: see ``LevelQuery``.

        Cached tokens are not read again, except the last one if its logits are needed.
        """
        texts, begins = self._parts(slots, requests, queries)
        wanted = [len(query.draft) + 1 for query in queries]
        return list(torch.split(self._forward(slots, texts, begins, wanted), wanted))

    def learn_cost(self, slots: Sequence[int], rows: int, seconds: float) -> None:
        """Learn that the last pass, of ``rows`` rows for ``slots``, took ``seconds``."""
        lengths = self._cache.lengths[list(slots)]  # include the rows of the pass
        self.costs.update(rows, len(slots), float((lengths.sum() - rows) / len(slots)), seconds)

    def clear(self, slot: int) -> None:
        """Forget a request's text."""
        self._read[slot] = np.empty(0, np.int32)
        self._cache.clear(slot)

    def _forward(
        self, slots: Sequence[int], texts: Sequence[Ids], begins: Sequence[int], wanted: list[int]
    ) -> torch.Tensor:
        layouts = [chain(text[begin:].astype(np.int64)) for text, begin in zip(texts, begins, strict=True)]
        self._cache.lengths[list(slots)] = begins
        logits = self.model.forward(self._cache, slots, layouts, wanted).logits
        for slot, text in zip(slots, texts, strict=True):
            self._cache.lengths[slot] = len(text)
            self._read[slot] = text
        self.passes += 1
        self.rows += sum(map(len, layouts))
        return logits

    def _parts(
        self, slots: Sequence[int], requests: Sequence[DraftRequest], queries: Sequence[LevelQuery]
    ) -> tuple[list[Ids], list[int]]:
        """The text of each query, and the place at which its reading begins."""
        texts = [_text(request, query) for request, query in zip(requests, queries, strict=True)]
        return texts, [self._begin(slot, text, query) for slot, text, query in zip(slots, texts, queries, strict=True)]

    def _begin(self, slot: int, text: Ids, query: LevelQuery) -> int:
        """The place at which reading begins: after the cached tokens, but not after the first row whose logits are needed."""
        return min(self._shared(slot, text), len(text) - len(query.draft) - 1)

    def _shared(self, slot: int, text: Ids) -> int:
        """The length of the cached prefix of ``text``. Cached tokens after it belong to a rejected draft."""
        return common_prefix(self._read[slot], text)


def _text(request: DraftRequest, query: LevelQuery) -> Ids:
    return np.concatenate([request.tokens, np.asarray(query.path + query.draft, np.int32)])
