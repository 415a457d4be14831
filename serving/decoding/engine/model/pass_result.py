"""The result of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class PassResult:
    """Logits and hidden states of a forward pass.

    Attributes:
        logits: float[wanted rows, vocab].
        features: float[rows, layers, width], the requested hidden states of all rows; None if none were requested.
    """

    logits: torch.Tensor
    features: torch.Tensor | None

    @staticmethod
    def of(output: Any, layers: Sequence[int], vocab_size: int) -> PassResult:
        """The result of one sequence, from the ``output`` of a transformers model."""
        features = torch.stack([output.hidden_states[layer][0] for layer in layers], 1) if layers else None
        return PassResult(output.logits[0, :, :vocab_size], features)

    def head(self, rows: int, wanted: int) -> PassResult:
        """The hidden states of the first ``rows`` rows, and the first ``wanted`` logits."""
        return PassResult(self.logits[:wanted], None if self.features is None else self.features[:rows])

    def empty(self, rows: int, wanted: int) -> PassResult:
        """An uninitialised result of ``rows`` rows and the logits of ``wanted`` rows."""
        features = None if self.features is None else self.features.new_empty((rows, *self.features.shape[1:]))
        return PassResult(self.logits.new_empty((wanted, self.logits.shape[1])), features)

    def copy_(self, other: PassResult) -> None:
        """Copy the values of ``other``, of the same shapes."""
        self.logits.copy_(other.logits)
        if self.features is not None and other.features is not None:
            self.features.copy_(other.features)
