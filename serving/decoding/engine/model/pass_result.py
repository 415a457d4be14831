"""The result of a forward pass, the call of the model, and the interface of passes that are not packed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

MOST_ROWS = 256
"""The most rows of a captured or compiled pass. Larger passes are packed: kernel launches take a small part of their time."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Logits and hidden states of a forward pass.

    Attributes:
        logits: float[wanted rows, vocab].
        features: float[rows, layers, width], the requested hidden states of all rows; None if none were requested.
    """

    logits: torch.Tensor
    features: torch.Tensor | None

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


def run_model(
    model: Any,
    ids: torch.Tensor,
    positions: torch.Tensor,
    cache: Any,
    rows: Any,
    vocab_size: int,
    layers: Sequence[int] = (),
    wanted: int | torch.Tensor = 0,
) -> PassResult:
    """Run a transformers model over one sequence, with the attention of ``rows``.

    Args:
        ids, positions: int64[1, rows].
        cache: a ``Cache`` of transformers.
        layers: layers whose hidden states are returned.
        wanted: the rows whose logits are returned; 0 for all.
    """
    output = model(
        input_ids=ids,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=wanted,
        suffolk_rows=rows,
        output_hidden_states=bool(layers),
    )
    features = torch.stack([output.hidden_states[layer][0] for layer in layers], 1) if layers else None
    return PassResult(output.logits[0, :, :vocab_size], features)


class SpecialPasses(ABC):
    """Passes of one kind over one cache. Not thread-safe. Slots, layouts and wanted rows as in ``LanguageModel.forward``."""

    def fits(self, layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
        """Whether this kind can run a pass; other passes are packed.

        By default, it can if the pass returns the logits of every row, and has at most ``MOST_ROWS`` rows.
        """
        sizes = [len(layout) for layout in layouts]
        return sizes == list(wanted) and sum(sizes) <= MOST_ROWS

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:  # noqa: B027 - not every kind captures
        """Capture what ``forward`` over these rows needs, if the pass fits. By default there is nothing to capture.

        Raises RuntimeError: the capture failed.
        """

    def prepare_all(self, progress: Callable[[Sequence[int]], Iterable[int]]) -> None:  # noqa: B027
        """Capture all shapes that are known beforehand, by default none. Raises RuntimeError: a capture failed.

        ``progress``: gets the sizes of the shapes, and yields them unchanged.
        """

    @abstractmethod
    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """A pass over rows that fit. The next pass may overwrite the result."""
