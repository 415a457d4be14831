"""Keeps a text from ending before it has its least number of tokens."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch

from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.transfer import to_device


class MinTokens:
    """Forbids the tokens that end a text while fewer than ``least`` tokens are generated. Immutable; safe to share."""

    def __init__(self, least: int, ends: Collection[int]) -> None:
        self._least, self._ends = least, np.array(sorted(ends), np.int64)

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place: -inf for the ends of rows whose text is too short."""
        generated = len(contexts.tokens) - contexts.prompt_length + contexts.depths
        rows = np.flatnonzero(generated < self._least)
        if len(rows):
            logits[to_device(rows, logits.device)[:, None], to_device(self._ends, logits.device)] = -torch.inf
        return logits
