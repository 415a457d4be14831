"""Searches texts of requests as if they were a datastore: the text of one request, or all texts that answer one prompt."""

from __future__ import annotations

from suffolk.datastore import _native
from suffolk.datastore.context_query import Tokens
from suffolk.datastore.draft_tree import RETRIEVED, DraftTree


class ContextIndex:
    """A context that grows at its end. A draft has the tokens that followed earlier occurrences of the context's longest suffix.

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
        """Extend or cut the text so that it equals ``ids``. One of the two must be the beginning of the other (not checked).

        Raises:
            InvalidArgument: a new id is outside the vocabulary; no token is added.
        """
        self.native.follow(ids)

    def draft(self, max_match: int = 16, min_match: int = 1, max_depth: int = 10, max_nodes: int = 64) -> DraftTree:
        """The tokens that followed earlier occurrences of the context's longest suffix, with exact counts.

        Raises:
            InvalidArgument: bounds out of range.
        """
        return _native.draft_contexts([self.native], max_match, min_match, max_depth, [max_nodes], self._source)[0]


class ParallelTexts:
    """Numbered texts that grow at their ends. A draft for one text has the tokens that follow its last tokens in other texts.

    Not thread-safe. A draft takes one pass over all texts.
    """

    def __init__(self, vocab_size: int, source: int = RETRIEVED) -> None:
        """``source``: the bit that this object sets in ``DraftTree.sources`` of every node that it drafts."""
        self._source = source
        self._native = _native.ParallelTexts(vocab_size)

    def __len__(self) -> int:
        """The number of texts."""
        return self._native.size

    def follow(self, number: int, ids: Tokens) -> None:
        """Extend or cut text ``number``, which may be new, so that it equals ``ids``.

        The text must be the beginning of ``ids``, or ``ids`` the beginning of the text. This is not checked.

        Raises:
            InvalidArgument: a new id is outside the vocabulary; no token is added.
        """
        self._native.follow(number, ids)

    def remove(self, number: int) -> None:
        """Forget a text, if there is one."""
        self._native.remove(number)

    def draft(
        self,
        number: int,
        context: Tokens,
        max_match: int = 16,
        min_match: int = 1,
        max_depth: int = 10,
        max_nodes: int = 64,
    ) -> DraftTree:
        """The tokens that follow the longest suffix of ``context`` in all texts except text ``number``, with exact counts.

        Raises:
            InvalidArgument: an id outside of the vocabulary, or bounds out of range.
        """
        return self._native.draft(number, context, max_match, min_match, max_depth, max_nodes, self._source)[0]
