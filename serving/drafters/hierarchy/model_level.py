"""A model as a level of a hierarchy: its cache, what of each text it has read, and its passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.drafters.hierarchy.draft_segment import Ask
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.model.tree_layout import chain
from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.policy.prefill_budget import PREFILL_CHUNK

Ids = npt.NDArray[np.int32]


class ModelLevel:
    """Verifies the tokens of the level below, or drafts one by one at the bottom. Not thread-safe.

    Attributes:
        name, tokens, temperature: as in ``StackLevel``.
        model: the network; ``costs``: of its passes, corrected by those that are made.
        passes, rows: made and read so far, prompts included.
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
        """The most tokens of a text that it can read."""
        return min(self._cache.capacity, self.model.context_length or self._cache.capacity)

    @property
    def cache_bytes(self) -> int:
        """Memory of its cache."""
        return self._cache.nbytes

    def pending(self, slot: int, tokens: Ids) -> int:
        """How many of ``tokens`` it has not read."""
        return len(tokens) - self._shared(slot, tokens)

    def read(self, slot: int, tokens: Ids, most: int = PREFILL_CHUNK) -> int:
        """Read a part of a prompt, up to ``most`` tokens and never the last token; how many are left of it."""
        begin = self._shared(slot, tokens)
        end = min(len(tokens) - 1, begin + most)
        self._forward([slot], [tokens[:end]], [begin], [1])
        self.model.synchronize()
        return len(tokens) - 1 - end

    def seconds_of(self, slots: Sequence[int], requests: Sequence[DraftRequest], asks: Sequence[Ask]) -> float:
        """What the pass for these should take."""
        texts, begins = self._parts(slots, requests, asks)
        rows = sum(len(text) - begin for text, begin in zip(texts, begins, strict=True))
        return self.costs.time(rows, len(asks), float(np.mean(begins)))

    def answer(self, slots: Sequence[int], requests: Sequence[DraftRequest], asks: Sequence[Ask]) -> list[torch.Tensor]:
        """One pass for all: for each ask float[draft + 1, vocab], the logits behind its path and behind each of its draft's tokens.

        Tokens that were read before and are still part of the text are not read again, but for the last one if what follows it
        is asked anew.
        """
        texts, begins = self._parts(slots, requests, asks)
        wanted = [len(ask.draft) + 1 for ask in asks]
        return list(torch.split(self._forward(slots, texts, begins, wanted), wanted))

    def learn_cost(self, slots: Sequence[int], rows: int, seconds: float) -> None:
        """What the last pass, of ``rows`` rows for ``slots``, took."""
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
        self, slots: Sequence[int], requests: Sequence[DraftRequest], asks: Sequence[Ask]
    ) -> tuple[list[Ids], list[int]]:
        """The text of each of a pass's asks, and from where on it is read."""
        texts = [_text(request, ask) for request, ask in zip(requests, asks, strict=True)]
        return texts, [self._begin(slot, text, ask) for slot, text, ask in zip(slots, texts, asks, strict=True)]

    def _begin(self, slot: int, text: Ids, ask: Ask) -> int:
        """From where on it reads ``text``: behind what is cached, but for the rows that are wanted."""
        return min(self._shared(slot, text), len(text) - len(ask.draft) - 1)

    def _shared(self, slot: int, text: Ids) -> int:
        """How many tokens from the first on are cached as they stand in ``text``: the others were drafts that nobody accepted."""
        read = self._read[slot]
        size = min(len(read), len(text))
        differing = np.flatnonzero(read[:size] != text[:size])
        return int(differing[0]) if len(differing) else size


def _text(request: DraftRequest, ask: Ask) -> Ids:
    return np.concatenate([request.tokens, np.asarray(ask.path + ask.draft, np.int32)])
