"""The text before each row of a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree


@dataclass(frozen=True, slots=True)
class RowContexts:
    """The texts after which a step samples tokens for one request: committed tokens (prompt and generated), then each row's
    drafted tokens.

    The token sampled at a row has position ``len(tokens) + depth``. Immutable by convention (the arrays are not copied); safe to
    share between threads.

    Attributes:
        tokens: int32[length], prompt and generated tokens; one or more.
        prompt_length: the number of prompt tokens among them.
        paths: int64[rows, deepest], the drafted tokens on each row's path from row 0; padded with -1.
        depths: int64[rows], 0 for row 0.
    """

    tokens: npt.NDArray[np.int32]
    prompt_length: int
    paths: npt.NDArray[np.int64]
    depths: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.depths)

    @staticmethod
    def of_tree(tokens: npt.NDArray[np.integer[Any]], prompt_length: int, tree: DraftTree) -> RowContexts:
        """Row 0 after ``tokens``, row ``i + 1`` after node ``i`` of the valid ``tree``; plain decoding has an empty tree."""
        depths = np.zeros(len(tree) + 1, np.int64)
        depths[1:] = tree.depths()
        paths = np.full((len(depths), depths.max()), -1, np.int64)
        rows = ancestors = np.arange(1, len(depths))
        while len(rows):  # each round writes one token of every path: the row's own, then its parent's, up to the root
            paths[rows, depths[ancestors] - 1] = tree.tokens[ancestors - 1]
            ancestors = tree.parents[ancestors - 1].astype(np.int64) + 1
            rows, ancestors = rows[ancestors > 0], ancestors[ancestors > 0]
        return RowContexts(np.asarray(tokens, np.int32), prompt_length, paths, depths)

    @staticmethod
    def of_text(tokens: npt.NDArray[np.integer[Any]], prompt_length: int) -> RowContexts:
        """One row after ``tokens``."""
        return RowContexts.of_tree(tokens, prompt_length, DraftTree.empty())

    def tails(self, length: int) -> npt.NDArray[np.int64]:
        """int64[rows, length], the last tokens of each row's text, padded in front with -1."""
        tail = np.full(length, -1, np.int64)
        kept = min(length, len(self.tokens))
        tail[length - kept :] = self.tokens[len(self.tokens) - kept :]
        both = np.concatenate([np.broadcast_to(tail, (len(self), length)), self.paths], axis=1)
        return np.take_along_axis(both, self.depths[:, None] + np.arange(length), axis=1)

    def levels(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """For each depth from 0 on: its rows int64[k], and their texts int64[k, length + depth]."""
        for depth in range(int(self.depths.max()) + 1):
            rows = np.flatnonzero(self.depths == depth)
            committed = np.broadcast_to(self.tokens.astype(np.int64), (len(rows), len(self.tokens)))
            yield rows, np.concatenate([committed, self.paths[rows, :depth]], axis=1)
