"""The interface of every datastore: on disk, in memory, or behind gRPC."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from suffolk.datastore.arguments import check_text
from suffolk.datastore.checks import whole_number
from suffolk.datastore.context_query import (
    DEFAULT_MAX_DEPTH,
    DEFAULT_MAX_MATCH,
    DEFAULT_MAX_NODES,
    DEFAULT_MIN_MATCH,
    DEFAULT_OCCURRENCES,
    DEFAULT_WINDOW,
    ContextQuery,
    OccurrenceQuery,
    StoreGroups,
    Tokens,
)
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import RETRIEVED, DraftTree
from suffolk.datastore.errors import Field, InvalidArgument, NotFound, Unsupported

if TYPE_CHECKING:
    from typing_extensions import Self

    from suffolk.datastore import _native

MAX_NODES = 1024
"""The largest number of nodes of a draft tree that a service sends or a target verifies."""
_NO_INDEX = "a retriever without an index answers find_matches and find_drafts itself"


class Match(NamedTuple):
    """Length of the longest suffix that occurs, in tokens, and its number of occurrences; (0, 0) if none occurs."""

    length: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def partial(self) -> bool:
        """Whether a part of the datastore could not be searched."""
        return False


class PartialMatch(Match):
    """A match in only some shards of a datastore: those that answered."""

    __slots__ = ()

    @property
    def partial(self) -> bool:
        return True


class Retriever(Protocol):
    """Longest-suffix lookups and draft trees (REST, He et al. 2023, section 3). Implementations are thread-safe.

    A context has any length, but only its last ``max_match`` tokens are used. ``lookup`` and ``draft`` also take a text. An
    implementation returns its index from ``native``, or overrides ``find_matches`` and ``find_drafts``.

    Args, in all queries:
        group: one group for all contexts, or a sequence with a group or None for each. An unknown group is empty. If several
            datastores are searched as one, a dict may map their names to groups.
        scope: the part to search. ``store``: all documents. ``group``: the group. ``group_first``, the default with a group: the
            group, or all documents if the group has no match. With ``group_first``, a draft takes its first nodes from the group,
            and the rest from all documents.

    Raises, in all queries:
        InvalidArgument: an id is outside the vocabulary, ``min_match`` is above ``max_match``, or ``max_match + max_depth`` is
            above the order depth (the number of tokens by which suffixes are sorted).
        Unsupported: a group or a scope is given, and the datastore has no groups.
        NotFound: a text is given, and the datastore has no tokenizer.
    """

    @property
    def name(self) -> str:
        """The datastore's name: the name of its folder, or the name under which a server offers it."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the datastores that are searched as one. Most retrievers have only ``name``."""
        return (self.name,)

    @property
    def vocab_size(self) -> int:
        """The vocabulary size. All token ids are below it. Reading this property calls no server."""
        ...

    @property
    def has_groups(self) -> bool:
        """Whether queries may name a group."""
        return False

    def lookup(
        self,
        context: str | Tokens,
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        group: str | None = None,
        scope: str | None = None,
    ) -> Match:
        """The longest suffix of ``context`` (of min_match..max_match tokens) that occurs, with its exact count."""
        query = ContextQuery([self._ids(context)], max_match, min_match, group=group, scope=scope)
        return self.find_matches(query.checked())[0]

    def lookup_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        group: StoreGroups = None,
        scope: str | None = None,
    ) -> list[Match]:
        """One ``lookup`` per context, in order."""
        return self.find_matches(ContextQuery(contexts, max_match, min_match, group=group, scope=scope).checked())

    def draft(
        self,
        context: str | Tokens,
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int = DEFAULT_MAX_NODES,
        group: str | None = None,
        scope: str | None = None,
    ) -> DraftTree:
        """The ``max_nodes`` most frequent paths that follow the longest match, as a tree sorted by falling count."""
        whole_number("max_nodes", max_nodes)
        query = ContextQuery([self._ids(context)], max_match, min_match, max_depth, max_nodes, group, scope)
        return self.find_drafts(query.checked())[0]

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES,
        group: StoreGroups = None,
        scope: str | None = None,
    ) -> list[DraftTree]:
        """One ``draft`` per context, in order; ``max_nodes`` may differ per context."""
        query = ContextQuery(contexts, max_match, min_match, max_depth, max_nodes, group, scope)
        return list(self.find_drafts(query.checked()))

    def find_matches(self, query: ContextQuery) -> list[Match]:
        """``lookup_batch`` for a query as a value."""
        keys = () if query.group is None and query.scope is None else self.group_keys(query)
        index = self.native()
        assert index is not None, _NO_INDEX
        found = index.lookup(query.contexts, query.max_match, query.min_match, *keys)
        return [Match(*answer) for answer in found]

    def find_drafts(self, query: ContextQuery) -> Sequence[DraftTree]:
        """``draft_batch`` for a query as a value."""
        contexts, max_match, min_match, max_depth, _, group, scope, least_counts, _ = query
        keys, searched = (None, "store") if group is None and scope is None else self.group_keys(query)
        index = self.native()
        assert index is not None, _NO_INDEX
        bounds = (max_match, min_match, max_depth, query.budgets)
        return index.draft(contexts, *bounds, RETRIEVED, keys, searched, least_counts)

    def count_documents(self, query: ContextQuery, most: int) -> list[int]:
        """For each context, the number of documents that hold the whole context, at most ``most``.

        At most 16 * (``most`` + 16) occurrences are examined. If a context occurs more often, the number may be too small. It is
        never too large.

        ``query.scope`` is ``store`` or ``group``. REQUIRES: ``native`` returns an index.

        Raises:
            InvalidArgument: a context has more tokens than the order depth.
        """
        keys = () if query.group is None and query.scope is None else self.group_keys(query)
        index = self.native()
        assert index is not None, _NO_INDEX
        return index.count_documents(query.contexts, most, *keys)

    def occurrences(
        self,
        pattern: str | Tokens,
        limit: int = DEFAULT_OCCURRENCES,
        context: int = DEFAULT_WINDOW,
        before: int = 0,
        group: str | None = None,
        scope: str | None = None,
    ) -> list[Occurrence]:
        """Up to ``limit`` occurrences of the whole ``pattern``.

        Segments are searched in turn until there are ``limit`` occurrences. Those from one segment are spread evenly over it.

        Args:
            pattern: a text or token ids. Its length is 1 to the order depth, in tokens.
            context: number of tokens after the pattern, in the same document.
            before: number of tokens before the pattern.

        Raises:
            Unsupported: the datastore cannot show occurrences.
            PermissionDenied: the server does not allow showing occurrences.
        """
        return self.find_occurrences(OccurrenceQuery(self._ids(pattern), limit, context, before, group, scope))

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """``occurrences`` for a query as a value."""
        raise Unsupported(f"datastore {self.name} cannot show occurrences; open its folder, or a draft service of it")

    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer that the datastore was built with; None if it was built from token ids. Loaded once."""
        ...

    def encode(self, text: str) -> list[int]:
        """The token ids of ``text``, without special tokens.

        Raises:
            NotFound: the datastore has no tokenizer.
            InvalidArgument: ``text`` holds a surrogate.
        """
        return list(self._encoding(text).ids)

    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]:
        """The token ids of ``text``, and the place of each token's first character in it. Raises the errors of ``encode``."""
        found = self._encoding(text)
        return list(found.ids), [start for start, _ in found.offsets]

    def decode(self, ids: Tokens) -> str:
        """The text of ``ids``, special tokens included.

        Raises:
            NotFound: the datastore has no tokenizer.
            InvalidArgument: an id is outside the vocabulary, or ``ids`` is one id.
        """
        if isinstance(ids, int | np.integer):
            raise InvalidArgument(Field("ids"), f" is {ids}; give a sequence of token ids, such as [{ids}]")
        tokenizer = self._text_tokenizer()
        for place, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise InvalidArgument(f"ids[{place}] is {token}; the vocabulary has {self.vocab_size} ids")
        return str(tokenizer.decode([int(token) for token in ids], skip_special_tokens=False))

    def select(self, names: Collection[str]) -> Retriever:
        """This retriever, limited to its datastores in ``names``. Closing one of the two retrievers closes both.

        Raises:
            InvalidArgument: none of its datastores is in ``names``.
        """
        if self.name not in names:
            raise InvalidArgument(f"datastore {self.name} is not one of {', '.join(names) or 'an empty list'}")
        return self

    def native(self) -> _native.Searched | None:
        """The current index in C++, which searches use, also in a ``MergedDatastore``. None if the datastore has none."""
        return None

    def group_keys(self, query: ContextQuery) -> tuple[npt.NDArray[np.uint64], str]:
        """The key of the group of each context, and the scope, as ``native`` takes them.

        Raises:
            InvalidArgument: a group or the scope is not allowed.
            Unsupported: the datastore has no groups.
        """
        raise Unsupported(f"datastore {self.name} has no groups, only live ones have; leave groups out")

    def info(self) -> dict[str, Any]:
        """Facts of the datastore: generation, tokens, documents, vocab_size, order_depth, tokenizer, bytes.

        Also segments, unless several datastores or shards are searched as one.
        """
        ...

    def close(self) -> None:
        """Release files and connections; later calls raise Unavailable."""
        ...

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, vocab_size={self.vocab_size})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ids(self, context: str | Tokens) -> Tokens:
        return self.encode(context) if isinstance(context, str) else context

    def _encoding(self, text: str) -> Encoding:
        tokenizer = self._text_tokenizer()
        check_text("the text", text)
        return tokenizer.encode(text, add_special_tokens=False)

    def _text_tokenizer(self) -> Tokenizer:
        tokenizer = self.tokenizer()
        if tokenizer is None:
            raise NotFound(f"datastore {self.name} was built from token ids and has no tokenizer; pass token ids")
        return tokenizer


@runtime_checkable
class AsyncRetriever(Retriever, Protocol):
    """A retriever with asynchronous calls: a client of one or several draft services.

    Attributes:
        healthy: whether the last finished call succeeded.
    """

    @property
    def healthy(self) -> bool: ...

    def draft_batch_future(self, query: ContextQuery) -> Future[list[DraftTree]]:
        """Call ``find_drafts`` without waiting. The future ends in bounded time, with the answer or an error."""
        ...
