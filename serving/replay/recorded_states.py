"""What drafters read of the target, its hidden states, its cache and its logits, from one pass over a recorded text."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.serving.engine.loop.drafter import CacheDrafter, Drafter, FeatureDrafter, LogitsDrafter, Said
from suffolk.serving.engine.model.pass_result import PassResult
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.model.tree_layout import chain
from suffolk.serving.engine.policy.prefill_budget import PREFILL_CHUNK

SPARE = 100
"""Rows of a cache, besides a text and its largest tree, for what drafters that share it put behind the text."""
SLOT = 0
"""Of the cache that a ``CacheDrafter`` sees: the text so far, with room behind it."""
_WHOLE = 1
"""The text as far as it was read: drafts overwrite what stands behind the text so far."""
_LOGITS_CHUNK = 64
"""Tokens of an answer that are read at a time where the logits of all are wanted: they are large."""


class RecordedStates:
    """Gives a drafter, step by step, what the target's passes would. Not thread-safe.

    What a pass gives at a token depends on the tokens before it alone, so that one pass over the text, as it was recorded, has
    that of all steps. It differs by rounding from what passes over trees give.
    """

    def __init__(self, target: Target, drafter: Drafter, capacity: int) -> None:
        """Attaches ``drafter`` to a cache if it reads one. ``capacity``: tokens of the longest text, and of what a drafter
        puts behind it.

        Raises:
            ResourceExhausted: no memory for the cache.
        """
        self._target = target
        self._reader = drafter if isinstance(drafter, FeatureDrafter) and drafter.layers else None
        self._learner = drafter if isinstance(drafter, LogitsDrafter) and drafter.reads_logits else None
        self._cache = target.new_cache(2, capacity)
        if isinstance(drafter, CacheDrafter):
            drafter.attach(self._cache)
        self._tokens: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._prompt = self._given = 0
        self._part: _Part | None = None

    def begin(self, tokens: npt.NDArray[np.int32], prompt: int) -> None:
        """A new text: int32[n], of which the first ``prompt`` are the prompt's."""
        self._cache.clear(SLOT)
        self._cache.clear(_WHOLE)
        self._tokens, self._prompt, self._given, self._part = tokens, prompt, 0, None

    def advance(self, request_id: int, length: int, learns: bool = True) -> float:
        """The text has ``length`` tokens now, all but the last of which the target has read: in parts, when they are needed.
        ``learns``: whether the drafter may be told what the new ones were drawn from; the seconds that took."""
        seconds = 0.0
        while self._given < length - 1:
            if self._part is None or self._given == self._part.end:
                self._part = self._read(self._given)
            part, begin, end = self._part, self._given, min(length - 1, self._part.end)
            self._cache.copy(_WHOLE, SLOT, begin, end)
            if self._reader is not None and part.result.features is not None:
                self._reader.follow(request_id, part.result.features[begin - part.begin : end - part.begin])
            said = max(begin, self._prompt - 1)  # the first token of the answer is drawn behind the prompt's last
            if self._learner is not None and learns and said < end:
                logits = part.result.logits[said - part.end :][: end - said]
                learning = time.perf_counter()
                self._learner.learn_logits([Said(request_id, self._tokens[: end + 1], logits)])
                seconds += time.perf_counter() - learning
            self._given = end
        return seconds

    def _read(self, begin: int) -> _Part:
        """The next part of the text."""
        if self._learner is None:
            most, all_said = PREFILL_CHUNK, False
        elif begin < self._prompt - 1:
            most, all_said = min(PREFILL_CHUNK, self._prompt - 1 - begin), False
        else:
            most, all_said = _LOGITS_CHUNK, True
        ids = self._tokens[begin : begin + most].astype(np.int64)
        end, wanted = begin + len(ids), len(ids) if all_said else 1
        layers = () if self._reader is None else self._reader.layers
        result = self._target.forward(self._cache, [_WHOLE], [chain(ids)], [wanted], layers)
        self._cache.lengths[_WHOLE] += len(ids)
        return _Part(begin, end, result)


@dataclass(frozen=True, slots=True)
class _Part:
    """What the target's pass over the tokens from ``begin`` to ``end`` gave; logits of the last of them."""

    begin: int
    end: int
    result: PassResult
