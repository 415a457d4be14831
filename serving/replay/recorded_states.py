"""What drafting networks read of the target, its hidden states and its cache, from one pass over a recorded text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from serving.decoding.drafter import CacheDrafter, Drafter, FeatureDrafter
from serving.decoding.target import PREFILL_CHUNK, Target
from serving.decoding.tree_layout import chain

if TYPE_CHECKING:
    import torch

SPARE = 100
"""Rows of a cache, besides a text and its largest tree, for what drafters that share it put behind the text."""
SLOT = 0
"""Of the cache that a ``CacheDrafter`` sees: the text so far, with room behind it."""
_WHOLE = 1
"""The whole text: drafts overwrite what stands behind the text so far."""


class RecordedStates:
    """Gives a drafter, step by step, what the target's passes would. Not thread-safe.

    The states of a token depend on the tokens before it alone, so that one pass over the text, as it was recorded, has those of
    all steps. They differ by rounding from those of passes over trees.
    """

    def __init__(self, target: Target, drafter: Drafter, capacity: int) -> None:
        """Attaches ``drafter`` to a cache if it reads one. ``capacity``: tokens of the longest text, and of what a drafter
        puts behind it.

        Raises:
            ResourceExhausted: no memory for the cache.
        """
        self._target = target
        self._reader = drafter if isinstance(drafter, FeatureDrafter) and drafter.layers else None
        self._cache = target.new_cache(2, capacity)
        if isinstance(drafter, CacheDrafter):
            drafter.attach(self._cache)
        self._features: torch.Tensor | None = None
        self._given = 0

    def begin(self, tokens: npt.NDArray[np.int32]) -> None:
        """A new text: int32[n], prompt and answer. One pass of the target, in parts."""
        ids = tokens[:-1].astype(np.int64)
        layers = () if self._reader is None else self._reader.layers
        self._cache.clear(SLOT)
        self._cache.clear(_WHOLE)
        parts = []
        for start in range(0, len(ids), PREFILL_CHUNK):
            part = chain(ids[start : start + PREFILL_CHUNK])
            parts.append(self._target.forward(self._cache, [_WHOLE], [part], [1], layers).features)
            self._cache.lengths[_WHOLE] += len(part)
        self._features = _joined(parts)
        self._given = 0

    def advance(self, request_id: int, length: int) -> None:
        """The text has ``length`` tokens now, all but the last of which the target has read."""
        begin, end = self._given, length - 1
        self._cache.copy(_WHOLE, SLOT, begin, end)
        if self._reader is not None and self._features is not None and end > begin:
            self._reader.follow(request_id, self._features[begin:end])
        self._given = end


def _joined(parts: list[torch.Tensor | None]) -> torch.Tensor | None:
    import torch

    found = [part for part in parts if part is not None]
    return torch.cat(found) if found else None
