"""Tree attention: all nodes of a draft tree in one forward pass of an unmodified model.

A node sees the context, its ancestors and itself (SpecInfer, Miao et al. 2024, section 4.2); its position is that of a token
``depth`` behind the context, whatever its row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """Rows of one forward pass: row 0 is the context's last token, row ``i + 1`` the tree's node ``i``.

    Attributes:
        tokens: int64[n + 1].
        depths: int64[n + 1], 0 for row 0.
        visible: bool[n + 1, n + 1], whether a row (first axis) sees another: its ancestors, itself, and row 0.
    """

    tokens: npt.NDArray[np.int64]
    depths: npt.NDArray[np.int64]
    visible: npt.NDArray[np.bool_]


def lay_out(last_token: int, tree: DraftTree) -> TreeLayout:
    """The rows for ``tree`` behind a context that ends in ``last_token``."""
    size = len(tree) + 1
    tokens = np.empty(size, np.int64)
    tokens[0] = last_token
    tokens[1:] = tree.tokens
    parents = np.zeros(size, np.int64)
    parents[1:] = tree.parents
    parents[1:] += 1
    depths = np.zeros(size, np.int64)
    visible = np.eye(size, dtype=np.bool_)
    rows = np.arange(1, size)
    ancestors = parents[1:]
    while len(rows):  # one round per level
        visible[rows, ancestors] = True
        depths[rows] += 1
        rows, ancestors = rows[ancestors > 0], parents[ancestors[ancestors > 0]]
    return TreeLayout(tokens, depths, visible)


def mask(layout: TreeLayout, cached: int, window: int | None) -> npt.NDArray[np.bool_]:
    """bool[n + 1, cached + n + 1], what each row sees of the cache and of the rows; ``window``: only that many positions back."""
    seen = np.ones((len(layout.tokens), cached + len(layout.tokens)), np.bool_)
    seen[:, cached:] = layout.visible
    if window is not None:
        positions = np.concatenate([np.arange(cached), cached + layout.depths])
        seen &= positions[None, :] > (cached + layout.depths)[:, None] - window
    return seen


def cut(tree: DraftTree, max_depth: int) -> DraftTree:
    """``tree`` without the nodes deeper than ``max_depth``."""
    keep = tree.depths() <= max_depth
    if keep.all():
        return tree
    row = np.cumsum(keep, dtype=np.int32) - 1
    parents = tree.parents[keep]
    parents = np.where(parents < 0, np.int32(-1), row[parents]).astype(np.int32)
    counts = None if tree.counts is None else tree.counts[keep]
    return DraftTree(
        tree.tokens[keep], parents, tree.scores[keep], tree.sources[keep], counts, tree.match_length, tree.match_count
    )
