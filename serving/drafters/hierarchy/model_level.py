"""A model as a level of a hierarchy: its cache, the tokens that it has read, and its passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.drafters.hierarchy.draft_segment import LevelQuery
from suffolk.serving.engine.costs.cost_model import CostModel
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.language_model import PREFILL_CHUNK
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.model.tree_layout import chain

Ids = npt.NDArray[np.int32]


class ModelLevel:
    """Verifies the draft of the level below; at the bottom it drafts token by token. Not thread-safe.

    Attributes:
        name, tokens, temperature: as in ``StackLevel``.
        model: the network; ``costs``: of its passes, updated by each pass.
        passes, rows: passes made and rows read so far, prompts included.
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
        """Allocates its cache. Raises ResourceExhausted: no memory for it."""
        self.name, self.tokens, self.temperature = name, tokens, temperature
        self.model, self.costs = model, costs
        self.passes = self.rows = 0
        self._cache = model.new_cache(slots, capacity)
        self._read: list[Ids] = [np.empty(0, np.int32)] * slots

    @property
    def limit(self) -> int:
        """The longest text that it can read, in tokens."""
        return min(self._cache.capacity, self.model.context_length or self._cache.capacity)

    @property
    def cache_bytes(self) -> int:
        """Bytes of its cache."""
        return self._cache.nbytes

    def pending(self, slot: int, tokens: Ids) -> int:
        """How many of ``tokens`` are not read."""
        return len(tokens) - self._shared(slot, tokens)

    def read(self, slot: int, tokens: Ids, most: int = PREFILL_CHUNK) -> int:
        """Read up to ``most`` pending tokens, never the last one; return how many are left."""
        begin = self._shared(slot, tokens)
        end = min(len(tokens) - 1, begin + most)
        self._forward([slot], [tokens[:end]], [begin], [1])
        self.model.synchronize()
        return len(tokens) - 1 - end

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
        """Make one pass; return for each query float[draft + 1, vocab], the logits behind its path and each of its draft's tokens.

        Cached tokens that are still part of the text are not read again, except the last one where its logits are needed.
        """
        texts, begins = self._parts(slots, requests, queries)
        wanted = [len(query.draft) + 1 for query in queries]
        return list(torch.split(self._forward(slots, texts, begins, wanted), wanted))

    def learn_cost(self, slots: Sequence[int], rows: int, seconds: float) -> None:
        """The last pass, of ``rows`` rows for ``slots``, took ``seconds``."""
        lengths = self._cache.lengths[list(slots)]  # behind the pass, with its rows
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
        """The text of each query, and the place from which it is read."""
        texts = [_text(request, query) for request, query in zip(requests, queries, strict=True)]
        return texts, [self._begin(slot, text, query) for slot, text, query in zip(slots, texts, queries, strict=True)]

    def _begin(self, slot: int, text: Ids, query: LevelQuery) -> int:
        """Where reading ``text`` begins: behind the cached tokens, but before the rows whose logits are wanted."""
        return min(self._shared(slot, text), len(text) - len(query.draft) - 1)

    def _shared(self, slot: int, text: Ids) -> int:
        """The length of the prefix of ``text`` that is cached; what differs behind it was a rejected draft."""
        read = self._read[slot]
        size = min(len(read), len(text))
        differing = np.flatnonzero(read[:size] != text[:size])
        return int(differing[0]) if len(differing) else size


def _text(request: DraftRequest, query: LevelQuery) -> Ids:
    return np.concatenate([request.tokens, np.asarray(query.path + query.draft, np.int32)])
