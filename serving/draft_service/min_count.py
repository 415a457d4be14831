"""Hides rare text: answers as if everything that occurs fewer than K times were not on file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tokenizers import Tokenizer

from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, Tokens
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.occurrence import Occurrence
from suffolk.datastore.retriever import Match, Retriever
from suffolk.serving.draft_service.frequent_windows import cut_windows

T = TypeVar("T")


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

    def find_matches(self, query: ContextQuery) -> list[Match]:
        """See ``Retriever.find_matches``."""
        return _group_first(query, self._frequent, lambda match: match.count > 0)

    def _frequent(self, query: ContextQuery) -> list[Match]:
        """The longest match of each context that is frequent enough, in one scope."""
        contexts, shortest = query.contexts, query.min_match - 1
        found = self._store.find_matches(query)
        low = [match if match.count >= self._least else Match(0, 0) for match in found]
        high = [match.length for match in found]  # this length or more occurs too rarely, unless ``low`` has it
        while True:
            open_ = [at for at, match in enumerate(low) if max(match.length, shortest) + 1 < high[at]]
            if not open_:
                return low
            sizes = [(max(low[at].length, shortest) + high[at]) // 2 for at in open_]
            tails = [_tail(contexts[at], size) for at, size in zip(open_, sizes, strict=True)]
            matches = self._store.find_matches(query.at(open_)._replace(contexts=tails, max_match=max(sizes)))
            for at, size, match in zip(open_, sizes, matches, strict=True):
                if match.length == size and match.count >= self._least:
                    low[at] = match
                else:
                    high[at] = size

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        """See ``Retriever.find_drafts``. A tree is of one scope: that of a group is not filled up with nodes of the store."""

        def draft(query: ContextQuery) -> list[DraftTree]:
            matches = self._frequent(query)
            tails = [_tail(context, match.length) for context, match in zip(query.contexts, matches, strict=True)]
            return [self._kept(tree) for tree in self._store.find_drafts(query._replace(contexts=tails))]

        return _group_first(query, draft, lambda tree: tree.match_length > 0)

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """See ``Retriever.occurrences``. The text around an occurrence is cut to what occurs ``least`` times together with the
        pattern."""
        longest = int(self._store.info()["order_depth"])
        query.check(longest)

        def find(part: ContextQuery) -> list[list[Occurrence]]:
            if not part.contexts:
                return []
            asked = query._replace(group=part.groups[0], scope=part.scope)

            def are_frequent(texts: Sequence[Tokens]) -> list[bool]:
                sizes = list(map(len, texts))
                matches = self._store.lookup_batch(texts, max(sizes), 1, asked.group, asked.scope)
                pairs = zip(sizes, matches, strict=True)
                return [match.length == size and match.count >= self._least for size, match in pairs]

            if not all(are_frequent([query.pattern])):
                return [[]]
            return [cut_windows(self._store.find_occurrences(asked), len(query.pattern), are_frequent, longest)]

        return _group_first(query.whole, find, bool)[0]

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


def _group_first(
    query: ContextQuery, answer: Callable[[ContextQuery], list[T]], is_found: Callable[[T], bool]
) -> list[T]:
    """The answer of each context: of its group if that has one, else of the store.

    Both are asked, because a rare match in the group would hide a frequent one in the store, and so show that it is there.
    """
    if query.group is None or query.scope not in (None, "group_first"):
        return answer(query)
    found = answer(query._replace(group=None, scope=None))
    grouped = [at for at, has_group in enumerate(query.has_group) if has_group]
    for at, own in zip(grouped, answer(query.at(grouped)._replace(scope="group")), strict=True):
        if is_found(own):
            found[at] = own
    return found


def _tail(context: Tokens, length: int) -> Tokens:
    return context[max(0, len(context) - length) :]
