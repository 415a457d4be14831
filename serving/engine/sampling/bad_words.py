"""Token sequences that a text may not complete."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.model.row_contexts import RowContexts


class BadWords:
    """Forbids the last token of a sequence if the text ends in the tokens before this last token. Immutable; safe to share."""

    def __init__(self, words: tuple[tuple[int, ...], ...], vocab_size: int) -> None:
        """Raises InvalidArgument for a token id that is not in the vocabulary."""
        by_length: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for number, word in enumerate(words):
            if max(word) >= vocab_size:
                raise InvalidArgument(f"bad_words[{number}] is {word}; the vocabulary has {vocab_size} ids")
            by_length[len(word)].append(word)
        self._words = [np.asarray(group, np.int64) for group in by_length.values()]
        self._longest = max(by_length)

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place: -inf for tokens that would complete a sequence."""
        tails = contexts.tails(self._longest - 1)
        for words in self._words:
            beginnings = words[:, :-1]
            ends = tails[:, tails.shape[1] - beginnings.shape[1] :]
            rows, found = np.nonzero((ends[:, None, :] == beginnings).all(-1))
            forbidden = torch.from_numpy(words[found, -1]).to(logits.device)
            logits[torch.from_numpy(rows).to(logits.device), forbidden] = -torch.inf
        return logits
