"""Hides rare text: answers as if everything that occurs fewer than K times were not on file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tokenizers import Tokenizer

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.occurrence import Occurrence, check_occurrences
from suffolk.datastore.retriever import (
    DEFAULT_MAX_DEPTH,
    DEFAULT_MAX_MATCH,
    DEFAULT_MAX_NODES,
    DEFAULT_MIN_MATCH,
    DEFAULT_OCCURRENCES,
    DEFAULT_WINDOW,
    Match,
    Retriever,
    Tokens,
)
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

    def lookup_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        **groups: Any,
    ) -> list[Match]:
        """See ``Retriever.lookup_batch``. ``groups``: group and scope, if ``store`` has groups."""

        def look_up(places: Sequence[int], part: Mapping[str, Any]) -> list[Match]:
            return self._frequent([contexts[at] for at in places], max_match, min_match, part)

        return _group_first(len(contexts), groups, look_up, lambda match: match.count > 0)

    def _frequent(
        self, contexts: Sequence[Tokens], max_match: int, min_match: int, groups: Mapping[str, Any]
    ) -> list[Match]:
        """The longest match of each context that is frequent enough, in one scope."""
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
        """See ``Retriever.draft_batch``. ``groups``: as for ``lookup_batch``. A tree is of one scope: that of a group is not
        filled up with nodes of the store."""

        def draft(places: Sequence[int], part: Mapping[str, Any]) -> list[DraftTree]:
            chosen = [contexts[at] for at in places]
            budgets = max_nodes if isinstance(max_nodes, int) else [max_nodes[at] for at in places]
            lengths = [match.length for match in self._frequent(chosen, max_match, min_match, part)]
            tails = [_tail(context, length) for context, length in zip(chosen, lengths, strict=True)]
            trees = self._store.draft_batch(tails, max_match, min_match, max_depth, budgets, **part)
            return [self._kept(tree) for tree in trees]

        return _group_first(len(contexts), groups, draft, lambda tree: tree.match_length > 0)

    def occurrences(
        self,
        pattern: str | Tokens,
        limit: int = DEFAULT_OCCURRENCES,
        context: int = DEFAULT_WINDOW,
        before: int = 0,
        **groups: Any,
    ) -> list[Occurrence]:
        """See ``Retriever.occurrences``. ``groups``: as for ``lookup_batch``, for the pattern. The text around an occurrence is cut
        to what occurs ``least`` times together with the pattern."""
        ids = self._ids(pattern)
        longest = int(self._store.info()["order_depth"])
        check_occurrences(ids, longest, limit, context, before)

        def find(places: Sequence[int], part: Mapping[str, Any]) -> list[list[Occurrence]]:
            asked = {**part, "group": groups["group"]} if part else {}  # one name in place of a list

            def are_frequent(texts: Sequence[Tokens]) -> list[bool]:
                matches = self._store.lookup_batch(texts, max(map(len, texts)), 1, **asked)
                pairs = zip(texts, matches, strict=True)
                return [match.length == len(text) and match.count >= self._least for text, match in pairs]

            if not places or not all(are_frequent([ids])):
                return [[] for _ in places]
            found = self._store.occurrences(ids, limit, context, before, **asked)
            return [cut_windows(found, len(ids), are_frequent, longest)]

        return _group_first(1, groups, find, bool)[0]

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
    contexts: int,
    groups: Mapping[str, Any],
    answer: Callable[[Sequence[int], Mapping[str, Any]], list[T]],
    is_found: Callable[[T], bool],
) -> list[T]:
    """The answer of each context: of its group if that has one, else of the store.

    Both are asked, because a rare match in the group would hide a frequent one in the store, and so show that it is there.
    """
    every, named = list(range(contexts)), groups.get("group")
    if named is None or groups.get("scope") not in (None, "group_first"):
        return answer(every, groups)
    names = [named] * contexts if isinstance(named, str) else list(named)
    found = answer(every, {})
    grouped = [at for at in every if names[at]]
    for at, own in zip(
        grouped, answer(grouped, {"group": [names[at] for at in grouped], "scope": "group"}), strict=True
    ):
        if is_found(own):
            found[at] = own
    return found


def _tail(context: Tokens, length: int) -> Tokens:
    return context[max(0, len(context) - length) :]


def _part(groups: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """The group arguments of the contexts at ``places``."""
    group = groups.get("group")
    if group is None or isinstance(group, str):
        return dict(groups)
    return {**groups, "group": [group[at] for at in places]}
