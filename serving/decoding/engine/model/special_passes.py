"""The interface of passes other than packed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

MOST_ROWS = 256
"""Most rows of a captured or compiled pass.

Larger passes are packed, because their work hides kernel launches and the gain of compiling.
"""


class SpecialPasses(Protocol):
    """Passes of one kind over one cache. Not thread-safe. Slots, layouts and wanted rows as in ``LanguageModel.forward``."""

    def fits(self, layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
        """Whether a pass is of this kind; other passes are packed."""

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:
        """Capture what ``forward`` over these rows needs, if it fits. Raises RuntimeError: that failed."""

    def prepare_all(self, progress: Callable[[Sequence[int]], Iterable[int]]) -> None:
        """Capture all shapes that are known beforehand. Raises RuntimeError: that failed.

        ``progress``: passes its argument, the sizes of the shapes, through.
        """

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """A pass over rows that fit. The next pass may overwrite the result."""


def fits_decoding(layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
    """Whether the pass returns the logits of every row, and has at most ``MOST_ROWS``."""
    sizes = [len(layout) for layout in layouts]
    return sizes == list(wanted) and sum(sizes) <= MOST_ROWS
