"""The interface of every datastore: on disk, in memory, or behind gRPC."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, NotFound, Unsupported
from suffolk.datastore.occurrence import Occurrence

if TYPE_CHECKING:
    from typing_extensions import Self

    from suffolk.datastore import _native

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]
"""Token ids, oldest first: a list of ints or a one-dimensional integer array."""

Groups = str | Sequence[str | None] | None
"""The group of all contexts or documents, or that of each; None: no group."""

SCOPES = ("store", "group", "group_first")
"""What a query with a group searches."""
DEFAULT_MAX_MATCH = 16
DEFAULT_MIN_MATCH = 1
DEFAULT_MAX_DEPTH = 10
DEFAULT_MAX_NODES = 64
DEFAULT_OCCURRENCES = 10
DEFAULT_WINDOW = 16
"""Tokens after an occurrence."""
MAX_NODES = 1024
"""The largest number of nodes of a draft tree that a service sends or a target verifies."""


class Match(NamedTuple):
    """Length of the longest suffix that occurs, in tokens, and its number of occurrences; (0, 0) if none occurs."""

    length: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class Retriever(Protocol):
    """Longest-suffix lookups and draft trees (REST, He et al. 2023, section 3). Implementations are thread-safe.

    A context has any length; only its last ``max_match`` tokens are used. ``lookup`` and ``draft`` also take a text.

    Raises, in all methods:
        InvalidArgument: an id is outside the vocabulary, ``min_match`` is above ``max_match``, or ``max_match + max_depth`` is
            above the order depth.
        NotFound: a text is given, and the datastore has no tokenizer.
    """

    @property
    def name(self) -> str:
        """The datastore's name: the name of its folder, or the name under which a server offers it."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the datastores that it searches as one; for most, ``name`` alone."""
        return (self.name,)

    @property
    def vocab_size(self) -> int:
        """The vocabulary size: all token ids are below it. Reading it makes no call to a server."""
        ...

    @property
    def has_groups(self) -> bool:
        """Whether ``draft_batch`` takes ``group``: one name for all contexts, or a name or None for each."""
        return False

    def lookup(
        self, context: str | Tokens, max_match: int = DEFAULT_MAX_MATCH, min_match: int = DEFAULT_MIN_MATCH
    ) -> Match:
        """The longest suffix of ``context`` (of min_match..max_match tokens) that occurs, with its exact count."""
        _require_integers(max_match=max_match, min_match=min_match)
        return self.lookup_batch([self._ids(context)], max_match, min_match)[0]

    def lookup_batch(
        self, contexts: Sequence[Tokens], max_match: int = DEFAULT_MAX_MATCH, min_match: int = DEFAULT_MIN_MATCH
    ) -> list[Match]:
        """One ``lookup`` per context, in order."""
        ...

    def draft(
        self,
        context: str | Tokens,
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int = DEFAULT_MAX_NODES,
    ) -> DraftTree:
        """The ``max_nodes`` most frequent paths that follow the longest match, as a tree sorted by falling count."""
        _require_integers(max_match=max_match, min_match=min_match, max_depth=max_depth, max_nodes=max_nodes)
        return self.draft_batch([self._ids(context)], max_match, min_match, max_depth, max_nodes)[0]

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES,
    ) -> list[DraftTree]:
        """One ``draft`` per context, in order; ``max_nodes`` may differ per context."""
        ...

    def occurrences(
        self, pattern: str | Tokens, limit: int = DEFAULT_OCCURRENCES, context: int = DEFAULT_WINDOW, before: int = 0
    ) -> list[Occurrence]:
        """Up to ``limit`` occurrences of the whole ``pattern``, spread evenly over those of a segment.

        Args:
            pattern: a text or token ids, 1 to the order depth.
            context: tokens after the pattern, in the same document.
            before: tokens before it.

        Raises:
            Unsupported: the datastore cannot show occurrences.
            PermissionDenied: a server does not show them.
        """
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
        """The token ids of ``text``, and the place of each token's first character in it. Raises as ``encode``."""
        found = self._encoding(text)
        return list(found.ids), [start for start, _ in found.offsets]

    def decode(self, ids: Tokens) -> str:
        """The text of ``ids``, special tokens included.

        Raises:
            NotFound: the datastore has no tokenizer.
            InvalidArgument: an id is outside the vocabulary, or ``ids`` is one id.
        """
        if isinstance(ids, int | np.integer):
            raise InvalidArgument(f"ids is {ids}; give a sequence of token ids, such as [{ids}]")
        tokenizer = self._text_tokenizer()
        for place, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise InvalidArgument(f"ids[{place}] is {token}; the vocabulary has {self.vocab_size} ids")
        return str(tokenizer.decode([int(token) for token in ids], skip_special_tokens=False))

    def select(self, names: Collection[str]) -> Retriever:
        """Those of its datastores that ``names`` has. ``close`` of either closes both.

        Raises:
            InvalidArgument: ``names`` has none of them.
        """
        if self.name not in names:
            raise InvalidArgument(f"datastore {self.name} is not one of {', '.join(names) or 'an empty list'}")
        return self

    def native(self) -> _native.Searched | None:
        """The index that it searches now, for ``MergedDatastore``; None if it can only be searched alone."""
        return None

    def group_keys(self, count: int, group: Groups, scope: str | None) -> tuple[npt.NDArray[np.uint64] | None, str]:
        """The key of the group of each of ``count`` contexts, and the scope, as ``native`` takes them.

        Raises:
            InvalidArgument: a group or the scope is not allowed.
            Unsupported: the datastore has no groups.
        """
        if group is None and scope is None:
            return None, "store"
        raise Unsupported(f"datastore {self.name} has no groups, only live ones have; leave groups out")

    def info(self) -> dict[str, Any]:
        """Facts of the datastore: generation, tokens, documents, segments, vocab_size, order_depth, tokenizer, bytes."""
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
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"the text has a surrogate at {error.start}; decode its bytes as UTF-8") from None
        return tokenizer.encode(text, add_special_tokens=False)

    def _text_tokenizer(self) -> Tokenizer:
        tokenizer = self.tokenizer()
        if tokenizer is None:
            raise NotFound(f"datastore {self.name} was built from token ids and has no tokenizer; pass token ids")
        return tokenizer


def _require_integers(**arguments: int) -> None:
    for name, value in arguments.items():
        if not isinstance(value, int | np.integer):
            raise InvalidArgument(f"{name} is {value!r}, of type {type(value).__name__}; it must be a whole number")
