"""Hidden states, KV cache and logits of the target for drafters, from one pass over a recorded text."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.serving.decoding.engine.loop.drafter import (
    CacheDrafter,
    Drafter,
    FeatureDrafter,
    GeneratedLogits,
    LogitsDrafter,
)
from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain

SLOT = 0
"""Cache slot that a ``CacheDrafter`` uses. It holds the text so far."""
_WHOLE = 1
"""Cache slot of all text that the target has read. It is separate because drafts overwrite the end of ``SLOT``."""
_LOGITS_CHUNK = 64
"""Tokens of one target pass if the logits of all tokens are kept."""


class RecordedStates:
    """Supplies a drafter with the target's states of each step. Not thread-safe.

    The states at a token depend only on the tokens before it, so one pass over the recorded text yields the states of
    all steps. Passes over trees yield the same states up to rounding.

    Attributes:
        slot: cache slot that drafters read.
    """

    def __init__(self, target: Target, drafter: Drafter, capacity: int) -> None:
        """Attach ``drafter`` to a cache if it reads one. Raises ResourceExhausted if there is no memory for the cache.

        Args:
            capacity: number of cache rows, for the tokens of the longest text and for drafts.
        """
        self.slot = SLOT
        self._target = target
        self._reader = drafter if isinstance(drafter, FeatureDrafter) and drafter.layers else None
        self._learner = drafter if isinstance(drafter, LogitsDrafter) and drafter.reads_logits else None
        self._cache = target.new_cache(2, capacity)
        if isinstance(drafter, CacheDrafter):
            drafter.attach(self._cache)
        self._tokens: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._prompt = self._given = 0
        self._chunk: _Chunk | None = None

    def begin(self, tokens: npt.NDArray[np.int32], prompt: int) -> None:
        """Start a text. ``tokens``: int32[n]. ``prompt``: length of the prompt."""
        self._cache.clear(SLOT)
        self._cache.clear(_WHOLE)
        self._tokens, self._prompt, self._given, self._chunk = tokens, prompt, 0, None

    def advance(self, request_id: int, length: int, learns: bool = True) -> float:
        """Extend the text to ``length`` tokens. The target reads all but the last one, in chunks. Returns the seconds of learning.

        Args:
            learns: whether the drafter learns from the logits of the new tokens.
        """
        seconds = 0.0
        while self._given < length - 1:
            if self._chunk is None or self._given == self._chunk.end:
                self._chunk = self._read(self._given)
            chunk, begin, end = self._chunk, self._given, min(length - 1, self._chunk.end)
            self._cache.copy(_WHOLE, SLOT, begin, end)
            if self._reader is not None and chunk.result.features is not None:
                self._reader.follow(request_id, chunk.result.features[begin - chunk.begin : end - chunk.begin])
            first = max(begin, self._prompt - 1)  # the prompt's last token has its logits
            if self._learner is not None and learns and first < end:
                logits = chunk.result.logits[first - chunk.end :][: end - first]
                learning = time.perf_counter()
                self._learner.learn_logits([GeneratedLogits(request_id, self._tokens[: end + 1], logits)])
                seconds += time.perf_counter() - learning
            self._given = end
        return seconds

    def _read(self, begin: int) -> _Chunk:
        """Run the target on the next chunk of the text."""
        if self._learner is None:
            size, all_logits = PREFILL_CHUNK, False
        elif begin < self._prompt - 1:
            size, all_logits = min(PREFILL_CHUNK, self._prompt - 1 - begin), False
        else:
            size, all_logits = _LOGITS_CHUNK, True
        ids = self._tokens[begin : begin + size].astype(np.int64)
        end, wanted = begin + len(ids), len(ids) if all_logits else 1
        layers = () if self._reader is None else self._reader.layers
        result = self._target.forward(self._cache, [_WHOLE], [chain(ids)], [wanted], layers)
        self._cache.lengths[_WHOLE] += len(ids)
        return _Chunk(begin, end, result)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Result of the target pass over the tokens ``begin`` to ``end``, with the logits of all of them, or of the last one."""

    begin: int
    end: int
    result: PassResult
