"""Prompt lookup: searches the context of one request as if it were a datastore."""

from __future__ import annotations

from suffolk.datastore import _native
from suffolk.datastore.context_query import Tokens
from suffolk.datastore.draft_tree import RETRIEVED, DraftTree


class ContextIndex:
    """A context that grows at its end. A draft is what followed earlier occurrences of the context's longest suffix.

    Not thread-safe. Each request has its own object. A draft takes one pass over the tokens.

    Attributes:
        native: the index, for ``_native.draft_contexts``.
    """

    def __init__(self, vocab_size: int, source: int = RETRIEVED) -> None:
        """``source``: the bit that this object sets in ``DraftTree.sources`` of every node that it drafts."""
        self._source = source
        self.native = _native.ContextIndex(vocab_size)

    def __len__(self) -> int:
        return self.native.size

    def append(self, ids: Tokens) -> None:
        """Add tokens at the end.

        Raises:
            InvalidArgument: an id is outside the vocabulary; no token is added.
        """
        self.native.append(ids)

    def truncate(self, size: int) -> None:
        """Keep the first ``size`` tokens.

        Raises:
            InvalidArgument: the context has fewer than ``size`` tokens.
        """
        self.native.truncate(size)

    def follow(self, ids: Tokens) -> None:
        """Change to a text of which this one is the beginning, or to a beginning of this one.

        Raises:
            InvalidArgument: a new id is outside the vocabulary; no token is added.
        """
        self.native.follow(ids)

    def draft(self, max_match: int = 16, min_match: int = 1, max_depth: int = 10, max_nodes: int = 64) -> DraftTree:
        """The continuations of earlier occurrences of the context's longest suffix, with exact counts.

        Raises:
            InvalidArgument: bounds out of range.
        """
        return _native.draft_contexts([self.native], max_match, min_match, max_depth, [max_nodes], self._source)[0]
