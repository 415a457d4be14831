"""The draft tree, which datastores, services, drafters and the decoding loop exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native

RETRIEVED = 1
"""The bit of ``DraftTree.sources`` for nodes from a datastore; the other bits belong to drafters."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Candidate continuations of one context, one node per token, parents before children.

    Attributes:
        tokens: int32[n], the token id of each node.
        parents: int32[n], the index of each node's parent; -1 for a child of the context's last token.
        scores: float32[n] in 0..1, the estimated probability that the whole path to the node is accepted. A child's score
            never exceeds its parent's.
        sources: uint32[n], a bit for each source that proposed the node.
        counts: uint64[n], number of occurrences that continue with the node's path; None unless a datastore made the tree.
        match_length: length of the longest suffix of the context that was found; 0 if none was found, or if the tree is not
            from a datastore.
        match_count: number of occurrences of that suffix in all segments.
        partial: whether a part of the datastore could not be searched in time. Nodes may be missing, and counts may be too low.

    Immutable by convention: the arrays are not copied. Safe to share between threads.
    """

    tokens: npt.NDArray[np.int32]
    parents: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    sources: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.uint64] | None = field(default=None)
    match_length: int = 0
    match_count: int = 0
    partial: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    @staticmethod
    def empty() -> DraftTree:
        """A tree without nodes: the normal answer if there is nothing to propose."""
        none = np.empty(0, np.int32)
        return DraftTree(none, none, np.empty(0, np.float32), np.empty(0, np.uint32), np.empty(0, np.uint64))

    def head(self, size: int) -> DraftTree:
        """The first ``size`` nodes, which form a tree because parents precede children."""
        if size >= len(self):
            return self
        return self._part(slice(size), self.parents[:size])

    def where(self, kept: npt.NDArray[np.bool_]) -> DraftTree:
        """The nodes of ``kept``, bool[n], whose ancestors are all kept too."""
        if kept.all():
            return self
        rooted = self.parents < 0
        # Each turn drops the children of dropped nodes.
        while (kept != (left := kept & (rooted | kept[self.parents]))).any():
            kept = left
        numbers = np.cumsum(kept, dtype=np.int32) - 1
        parents = np.where(rooted, np.int32(-1), numbers[self.parents])
        return self._part(kept, parents[kept])

    def depths(self) -> npt.NDArray[np.int32]:
        """int32[n], the depth of each node: 1 for a child of the context's last token.

        Raises:
            InvalidArgument: a parent does not precede its child.
        """
        return _native.tree_depths(self.parents)

    def likely(self, least: float) -> DraftTree:
        """The nodes whose scores are at least ``least``. REQUIRES: scores fall from node to node."""
        return self.head(int(np.count_nonzero(self.scores >= least)))

    def validate(self, vocab_size: int) -> DraftTree:
        """Check the arrays, and return this tree.

        Raises:
            InvalidArgument: an array has another type or length, a parent does not precede its child, a score is outside 0..1, or
                an id is outside 0..vocab_size-1. Not checked are ``counts``, and whether a child's score exceeds its parent's.
        """
        validate_all([self], vocab_size)
        return self

    def _part(self, kept: slice | npt.NDArray[np.bool_], parents: npt.NDArray[np.int32]) -> DraftTree:
        return DraftTree(
            self.tokens[kept],
            parents,
            self.scores[kept],
            self.sources[kept],
            None if self.counts is None else self.counts[kept],
            self.match_length,
            self.match_count,
            self.partial,
        )


def validate_all(trees: Sequence[DraftTree], vocab_size: int) -> None:
    """``DraftTree.validate`` of each of ``trees``."""
    _native.check_trees(trees, vocab_size)
