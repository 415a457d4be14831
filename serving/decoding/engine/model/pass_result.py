"""The result of a forward pass, and the interface of passes that are not packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

MOST_ROWS = 256
"""The most rows of a captured or compiled pass.

Larger passes are packed, because their work hides kernel launches and the gain of compiling.
"""


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


class SpecialPasses(Protocol):
    """Passes of one kind over one cache. Not thread-safe. Slots, layouts and wanted rows as in ``LanguageModel.forward``."""

    def fits(self, layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
        """Whether a pass is of this kind; other passes are packed."""

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:
        """Capture what ``forward`` over these rows needs, if the pass fits. Raises RuntimeError: the capture failed."""

    def prepare_all(self, progress: Callable[[Sequence[int]], Iterable[int]]) -> None:
        """Capture all shapes that are known beforehand. Raises RuntimeError: a capture failed.

        ``progress``: gets the sizes of the shapes, and yields them unchanged.
        """

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """A pass over rows that fit. The next pass may overwrite the result."""


def fits_decoding(layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
    """Whether the pass returns the logits of every row, and has at most ``MOST_ROWS``."""
    sizes = [len(layout) for layout in layouts]
    return sizes == list(wanted) and sum(sizes) <= MOST_ROWS
