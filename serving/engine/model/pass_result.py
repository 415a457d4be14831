"""What a forward pass of the target gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a forward pass gives.

    Attributes:
        logits: float[wanted rows, vocab].
        features: float[rows, layers, width], the hidden states that were asked for, of all rows; None if none were.
    """

    logits: torch.Tensor
    features: torch.Tensor | None

    @staticmethod
    def of(output: Any, layers: Sequence[int], vocab_size: int) -> PassResult:
        """Taken from the ``output`` of a transformers model for one sequence."""
        features = torch.stack([output.hidden_states[layer][0] for layer in layers], 1) if layers else None
        return PassResult(output.logits[0, :, :vocab_size], features)

    def head(self, rows: int) -> PassResult:
        """Of the first ``rows`` rows, all of whose logits were wanted."""
        return PassResult(self.logits[:rows], None if self.features is None else self.features[:rows])

    def empty(self, rows: int) -> PassResult:
        """Room for ``rows`` rows of the same."""
        features = None if self.features is None else self.features.new_empty((rows, *self.features.shape[1:]))
        return PassResult(self.logits.new_empty((rows, self.logits.shape[1])), features)

    def copy_(self, other: PassResult) -> None:
        """Take over the values of ``other``, of the same shapes."""
        self.logits.copy_(other.logits)
        if self.features is not None and other.features is not None:
            self.features.copy_(other.features)
