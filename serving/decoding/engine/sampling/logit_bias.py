"""Numbers added to the logits of single tokens."""

from __future__ import annotations

import numpy as np
import torch

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.transfer import to_device


class LogitBias:
    """Adds a number to the logit of each of some tokens. Immutable; safe to share."""

    def __init__(self, biases: tuple[tuple[int, float], ...], vocab_size: int) -> None:
        """Raises InvalidArgument for a token id that is not in the vocabulary."""
        for token, _ in biases:
            if token >= vocab_size:
                raise InvalidArgument(
                    Field("logit_bias"), f" has token id {token}; the vocabulary has {vocab_size} ids"
                )
        self._tokens = np.array([token for token, _ in biases], np.int64)
        self._values = np.array([value for _, value in biases], np.float64)

    def apply(self, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
        """``logits`` float[rows, vocab], changed in place."""
        logits[:, to_device(self._tokens, logits.device)] += to_device(self._values, logits.device).to(logits.dtype)
        return logits
