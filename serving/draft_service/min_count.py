"""Hides rare text: answers as if everything that occurs fewer than K times were not on file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.retriever import (
    DEFAULT_MAX_DEPTH,
    DEFAULT_MAX_MATCH,
    DEFAULT_MAX_NODES,
    DEFAULT_MIN_MATCH,
    Match,
    Retriever,
    Tokens,
)


class MinCount(Retriever):
    """The matches and nodes of ``store`` that occur at least ``least`` times. Thread-safe if ``store`` is.

    A match is the longest suffix that occurs ``least`` times or more, and a tree has only nodes that do. Both are exact, since
    counts only fall as a text grows. Occurrences are counted, not documents: text that one document repeats counts each time.
    A lookup below the limit costs further lookups: the binary logarithm of its length.
    """

    def __init__(self, store: Retriever, least: int) -> None:
        self._store, self._least = store, least

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def vocab_size(self) -> int:
        return self._store.vocab_size

    @property
    def has_groups(self) -> bool:
        return self._store.has_groups

    def lookup_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        **groups: Any,
    ) -> list[Match]:
        """See ``Retriever.lookup_batch``. ``groups``: group and scope, if ``store`` has groups."""
        found = self._store.lookup_batch(contexts, max_match, min_match, **groups)
        low = [match if match.count >= self._least else Match(0, 0) for match in found]
        high = [match.length for match in found]  # this length or more occurs too rarely, unless ``low`` has it
        while True:
            open_ = [at for at, match in enumerate(low) if max(match.length, min_match - 1) + 1 < high[at]]
            if not open_:
                return low
            sizes = [(max(low[at].length, min_match - 1) + high[at]) // 2 for at in open_]
            tails = [_tail(contexts[at], size) for at, size in zip(open_, sizes, strict=True)]
            matches = self._store.lookup_batch(tails, max(sizes), min_match, **_part(groups, open_))
            for at, size, match in zip(open_, sizes, matches, strict=True):
                if match.length == size and match.count >= self._least:
                    low[at] = match
                else:
                    high[at] = size

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES,
        **groups: Any,
    ) -> list[DraftTree]:
        """See ``Retriever.draft_batch``. ``groups``: as for ``lookup_batch``."""
        lengths = [match.length for match in self.lookup_batch(contexts, max_match, min_match, **groups)]
        tails = [_tail(context, length) for context, length in zip(contexts, lengths, strict=True)]
        trees = self._store.draft_batch(tails, max_match, min_match, max_depth, max_nodes, **groups)
        return [self._kept(tree) for tree in trees]

    def tokenizer(self) -> Tokenizer | None:
        """See ``Retriever.tokenizer``."""
        return self._store.tokenizer()

    def info(self) -> dict[str, Any]:
        """See ``Retriever.info``."""
        return self._store.info()

    def close(self) -> None:
        """Do nothing: the store belongs to the caller."""

    def _kept(self, tree: DraftTree) -> DraftTree:
        if tree.match_count < self._least or tree.counts is None:
            return DraftTree.empty()
        return tree.where(tree.counts >= self._least)


def _tail(context: Tokens, length: int) -> Tokens:
    return context[max(0, len(context) - length) :]


def _part(groups: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """The group arguments of the contexts at ``places``."""
    group = groups.get("group")
    if group is None or isinstance(group, str):
        return dict(groups)
    return {**groups, "group": [group[at] for at in places]}
