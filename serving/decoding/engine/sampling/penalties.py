"""Penalties on tokens that occurred before.

Repetition counts prompt and generated text; presence and frequency count only generated text.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.transfer import to_device
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


class Penalties:
    """The penalties of one request. Not thread-safe.

    Committed tokens are counted once; drafted tokens count on their own rows only. Only the columns of tokens that occur are
    changed.
    """

    def __init__(self, settings: SamplingSettings, vocab_size: int) -> None:
        self._repetition = settings.repetition_penalty
        self._presence, self._frequency = settings.presence_penalty, settings.frequency_penalty
        self._length = 0
        self._seen = np.zeros(vocab_size, np.bool_)
        self._generated = np.zeros(vocab_size, np.int64)  # how often each token was generated
        self._distinct = np.empty(0, np.int64)  # the tokens of prompt and text

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place. The committed text of a call must extend that of the call before."""
        self._count(contexts)
        tokens = to_device(self._distinct, logits.device)
        counts = to_device(self._generated[self._distinct], logits.device)
        drafted, drafted_counts = (to_device(array, logits.device) for array in self._on_paths(contexts))
        changed = self._penalised(logits.gather(1, drafted), drafted_counts)
        logits[:, tokens] = self._penalised(logits[:, tokens], counts)
        return logits.scatter_(1, drafted, changed)

    def _count(self, contexts: RowContexts) -> None:
        fresh = contexts.tokens[self._length :].astype(np.int64)
        generated = fresh[max(0, contexts.prompt_length - self._length) :]
        np.add.at(self._generated, generated, 1)
        fresh = np.unique(fresh[~self._seen[fresh]])
        self._seen[fresh] = True
        self._distinct = np.concatenate([self._distinct, fresh])
        self._length = len(contexts.tokens)

    def _on_paths(self, contexts: RowContexts) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Two int64[rows, deepest]: tokens of each row's text, and how often the row's text generated each.

        Rows are padded with the last committed token, which is penalised anyway.
        """
        tokens = np.where(contexts.paths < 0, np.int64(contexts.tokens[-1]), contexts.paths)
        drafted = (contexts.paths[:, None, :] == tokens[:, :, None]).sum(-1)
        return tokens, self._generated[tokens] + drafted

    def _penalised(self, scores: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        scores = torch.where(scores < 0, scores * self._repetition, scores / self._repetition)
        return scores - counts.to(scores.dtype) * self._frequency - (counts > 0).to(scores.dtype) * self._presence
