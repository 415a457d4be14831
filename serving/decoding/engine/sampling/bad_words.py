"""Token sequences that a text may not complete."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts

_TOKEN = np.dtype(np.int64)


class BadWords:
    """Forbids the last token of a sequence where the text ends in the tokens before it. Immutable; safe to share.

    Each row takes one look into a table for each length of a sequence, however many sequences there are.
    """

    def __init__(self, words: tuple[tuple[int, ...], ...], vocab_size: int) -> None:
        """Raises InvalidArgument for a token id that is not in the vocabulary."""
        self._last: defaultdict[bytes, list[int]] = defaultdict(list)  # by the tokens before the last one
        for number, word in enumerate(words):
            if max(word) >= vocab_size:
                raise InvalidArgument(Field("bad_words"), f"[{number}] is {word}; the vocabulary has {vocab_size} ids")
            self._last[np.array(word[:-1], _TOKEN).tobytes()].append(word[-1])
        self._last.default_factory = None
        self._sizes = sorted({len(beginning) for beginning in self._last})

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place: -inf for tokens that would complete a sequence."""
        longest = self._sizes[-1]
        rows: list[int] = []
        forbidden: list[int] = []
        for row, tail in enumerate(contexts.tails(longest // _TOKEN.itemsize)):
            ending = tail.tobytes()
            for size in self._sizes:
                if tokens := self._last.get(ending[longest - size :]):
                    rows += [row] * len(tokens)
                    forbidden += tokens
        logits[
            torch.tensor(rows, device=logits.device).long(), torch.tensor(forbidden, device=logits.device).long()
        ] = -torch.inf
        return logits
