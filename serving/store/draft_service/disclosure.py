"""Limits what callers see: no paths of files, and no text that fewer than K documents hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, Tokens
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded, SuffolkError
from suffolk.datastore.retriever import Match, Retriever
from suffolk.datastore.tree_paths import tree_paths

T = TypeVar("T")
_PART = 32
"""Number of texts that are counted between two checks of the deadline."""
Frequent = Callable[[Sequence[int], Sequence[Tokens]], Sequence[bool]]
"""(entries, texts) -> for each text, whether it is frequent, that is, in enough documents. Text i belongs to entries[i]."""
LOG = logging.getLogger("suffolk.server")


class StoreView(Retriever):
    """The visible part of ``store``, with the store's name and facts. Closing the view leaves the store open."""

    def __init__(self, store: Retriever) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def vocab_size(self) -> int:
        return self._store.vocab_size

    @property
    def has_groups(self) -> bool:
        return self._store.has_groups

    def tokenizer(self) -> Tokenizer | None:
        return self._store.tokenizer()

    def info(self) -> dict[str, Any]:
        return self._store.info()

    def close(self) -> None:
        """Do nothing: the store belongs to the caller."""


class MinCount(StoreView):
    """The matches and nodes of ``store`` that at least ``least`` documents hold. Thread-safe if ``store`` is.

    A match is the longest suffix that ``least`` documents hold. Each node of a tree is in at least ``least`` documents too. A
    text is shown only if its documents were counted one by one. Text that is very frequent in few documents may be hidden
    (``Retriever.count_documents``). If too few documents hold the longest match, of length n, about log2(n) further lookups
    follow.
    """

    def __init__(self, store: Retriever, least: int, expired: Callable[[], bool] = lambda: False) -> None:
        """``expired``: returns True if the deadline has passed; calls then raise DeadlineExceeded."""
        super().__init__(store)
        self._least, self._expired = least, expired

    def find_matches(self, query: ContextQuery) -> list[Match]:
        return _group_first(query, self._matches, lambda match: match.count > 0)

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        """See ``Retriever.find_drafts``. A tree is from the group or from the whole store, never from both."""
        return _group_first(query, self._drafts, lambda tree: tree.match_length > 0)

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """See ``Retriever.occurrences``. The text around an occurrence is cut: ``least`` documents hold the pattern together with
        the part that is shown."""
        longest = int(self._store.info()["order_depth"])
        query.check(longest)

        def find(part: ContextQuery) -> list[list[Occurrence]]:
            if not part.contexts or not all(self._are_frequent(part, [0], [query.pattern])):
                return [[]] * len(part.contexts)
            found = self._store.find_occurrences(query._replace(group=part.groups[0], scope=part.scope))
            return [
                cut_windows(
                    found,
                    len(query.pattern),
                    lambda _, texts: self._are_frequent(part, [0] * len(texts), texts),
                    longest,
                )
            ]

        return _group_first(query.whole, find, bool)[0]

    def _matches(self, query: ContextQuery) -> list[Match]:
        """The longest frequent match of each context, in one scope."""
        found = self._store.find_matches(query)
        contexts = query.contexts
        lengths = largest_frequent(
            [match.length for match in found],
            lambda at, length: _tail(contexts[at], length),
            lambda places, texts: self._are_frequent(query, places, texts),
        )
        if all(match.length == length for match, length in zip(found, lengths, strict=True)):
            return found
        tails = [_tail(context, length) for context, length in zip(contexts, lengths, strict=True)]
        return self._store.find_matches(query._replace(contexts=tails))

    def _drafts(self, query: ContextQuery) -> list[DraftTree]:
        """The frequent nodes after the longest frequent match of each context, in one scope."""
        matches = self._matches(query)
        tails = [_tail(context, match.length) for context, match in zip(query.contexts, matches, strict=True)]
        trees = self._store.find_drafts(query._replace(contexts=tails))
        trees = [self._often(tree) for tree in trees]
        places = [at for at, tree in enumerate(trees) for _ in range(len(tree))]
        texts = [
            [*map(int, _tail(tail, tree.match_length)), *path]
            for tail, tree in zip(tails, trees, strict=True)
            for path in tree_paths(tree)
        ]
        kept = iter(self._are_frequent(query, places, texts))
        return [tree.where(np.fromiter(kept, np.bool_, len(tree))) for tree in trees]

    def _often(self, tree: DraftTree) -> DraftTree:
        """The nodes that may be frequent. The number of occurrences of a text is at least the number of documents that hold
        it."""
        if tree.counts is None:
            return DraftTree.empty()
        return tree.where(tree.counts >= self._least)

    def _are_frequent(self, query: ContextQuery, places: Sequence[int], texts: Sequence[Tokens]) -> list[bool]:
        """Whether enough documents hold each text. ``places``: for each text, the index of the context that gives its
        scope."""
        counts: list[int] = []
        for begin in range(0, len(texts), _PART):
            if self._expired():
                raise DeadlineExceeded("the deadline passed while documents were counted; allow more time or send less")
            part = slice(begin, begin + _PART)
            counts += self._store.count_documents(query.at(places[part])._replace(contexts=texts[part]), self._least)
        return [count >= self._least for count in counts]


def _group_first(
    query: ContextQuery, answer: Callable[[ContextQuery], list[T]], is_found: Callable[[T], bool]
) -> list[T]:
    """The answer for each context: from its group if the group has an answer, else from the store.

    The two are searched separately. In one search, a rare match in the group would replace a frequent match in the store, and
    this would reveal the rare match.
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


def cut_windows(places: Sequence[Occurrence], pattern: int, are_frequent: Frequent, longest: int) -> list[Occurrence]:
    """``places``, whose windows (the pattern and the tokens around it) are cut until they are frequent. First, as many tokens as
    possible after the pattern are kept, and then as many as possible before it.

    Args:
        pattern: tokens of the pattern, which is frequent.
        longest: the most tokens of a window.
    """
    rooms = [min(len(place.tokens), longest) - pattern for place in places]
    sizes = largest_frequent(rooms, lambda at, size: places[at].tokens[: pattern + size], are_frequent)
    ends = [place.tokens[: pattern + size] for place, size in zip(places, sizes, strict=True)]
    rooms = [min(len(place.before), longest - len(end)) for place, end in zip(places, ends, strict=True)]
    sizes = largest_frequent(
        rooms, lambda at, size: np.concatenate((_last(places[at].before, size), ends[at])), are_frequent
    )
    return [
        replace(place, tokens=end, before=_last(place.before, size))
        for place, end, size in zip(places, ends, sizes, strict=True)
    ]


def largest_frequent(limits: Sequence[int], text: Callable[[int, int], Tokens], are_frequent: Frequent) -> list[int]:
    """For each entry, the largest size, from 0 to its limit, at which ``text(entry, size)`` is frequent. The text of size
    0 is frequent.

    First the limits are tried, because most texts of this size are frequent. For the other entries, the sizes are bisected.
    """
    low, high, sizes = [0] * len(limits), list(limits), list(limits)
    while open_ := [at for at in range(len(limits)) if low[at] < high[at]]:
        answers = are_frequent(open_, [text(at, sizes[at]) for at in open_])
        for at, is_frequent in zip(open_, answers, strict=True):
            if is_frequent:
                low[at] = sizes[at]
            else:
                high[at] = sizes[at] - 1
            sizes[at] = (low[at] + high[at] + 1) // 2
    return low


def _last(tokens: npt.NDArray[np.uint32], size: int) -> npt.NDArray[np.uint32]:
    return tokens[len(tokens) - size :]


class HiddenPaths:
    """Puts the names of datastores in place of their paths. Thread-safe."""

    def __init__(self) -> None:
        self._logged = ""

    @contextmanager
    def in_errors(self, stores: Mapping[str, Retriever]) -> Iterator[None]:
        """In errors of the block, the names of ``stores`` replace their folders. The folders are logged. An error that recurs is
        logged once."""
        try:
            yield
        except SuffolkError as error:
            text = str(error)
            for name, store in stores.items():
                path = str(getattr(store, "path", None) or "")
                if "/" in path:
                    error.replace(path, name)
            if str(error) != text != self._logged:
                LOG.error("%s", text)
                self._logged = text
            raise


def public_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info of a datastore without its path, and with the names of corpora in place of their paths."""
    shown = {key: value for key, value in info.items() if key != "path"}
    settings = shown.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("builds"), list):
        shown["settings"] = settings | {"builds": [_public_build(build) for build in settings["builds"]]}
    return shown


def _public_build(build: Any) -> Any:
    if not isinstance(build, dict) or not isinstance(build.get("corpora"), list):
        return build
    return build | {"corpora": [Path(str(corpus)).name for corpus in build["corpora"]]}
