"""The rows of a forward pass: a context's last token with a draft tree, or a chunk of a prompt.

Source: SpecInfer (Miao et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """One request's rows of a forward pass.

    For a tree, row 0 is the context's last token, and row ``i + 1`` is node ``i`` of the tree.

    Attributes:
        tokens: int64[n].
        depths: int64[n], a row's position after the cached tokens; 0 for row 0.
        visible: bool[n, earlier + n], whether a row (first axis) sees another row. A row sees its ancestors and itself. None for
            a chain, in which every row sees itself and all rows before it.
        earlier: int64[earlier], the depths of rows that earlier passes over the same tree have read; empty unless the tree is
            read level by level.
    """

    tokens: npt.NDArray[np.int64]
    depths: npt.NDArray[np.int64]
    visible: npt.NDArray[np.bool_] | None
    earlier: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.tokens)


def lay_out(last_token: int, tree: DraftTree) -> TreeLayout:
    """The rows for ``tree`` after a context that ends in ``last_token``. Raises InvalidArgument if ``tree`` is malformed."""
    return TreeLayout(*_native.lay_out(last_token, tree.tokens, tree.parents))


def chain(tokens: npt.NDArray[np.int64]) -> TreeLayout:
    """The rows for ``tokens`` in sequence: a chunk of a prompt, or a draft without branches."""
    return TreeLayout(tokens, np.arange(len(tokens)), None)


def cut(tree: DraftTree, max_depth: int) -> DraftTree:
    """``tree`` without the nodes deeper than ``max_depth``."""
    if len(tree) <= max_depth:  # each level has a node
        return tree
    return tree.where(tree.depths() <= max_depth)


def positions_within(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For runs of ``counts`` entries that follow each other: the place of each entry in its run. [2, 3] gives [0, 1, 0, 1, 2]."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
