"""A retriever that never fails: what cannot be answered is "nothing found", counted by its reason and logged once."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from datastore.draft_tree import DraftTree
from datastore.errors import SuffolkError
from datastore.retriever import (
    DEFAULT_MAX_DEPTH,
    DEFAULT_MAX_MATCH,
    DEFAULT_MAX_NODES,
    DEFAULT_MIN_MATCH,
    Match,
    Retriever,
    Tokens,
)

LOG = logging.getLogger("suffolk.draft_service")
T = TypeVar("T")


class FailSoft:
    """``inner``, with errors turned into empty trees and matches of length 0. Thread-safe.

    Decoding asks through this: no draft makes a step slower, never wrong. ``info`` and ``close`` stay strict.
    """

    def __init__(self, inner: Retriever) -> None:
        self.inner = inner
        self._lock = threading.Lock()
        self._missed: Counter[str] = Counter()

    def missed(self) -> dict[str, int]:
        """Queries that got no answer, by the name of the error: {"DeadlineExceeded": 12, "Unavailable": 240}."""
        with self._lock:
            return dict(self._missed)

    @property
    def name(self) -> str:
        """See ``Retriever.name``."""
        return self.inner.name

    @property
    def vocab_size(self) -> int:
        """See ``Retriever.vocab_size``."""
        return self.inner.vocab_size

    def lookup(self, ids: Tokens, max_match: int = DEFAULT_MAX_MATCH, min_match: int = DEFAULT_MIN_MATCH) -> Match:
        return self.lookup_batch([ids], max_match, min_match)[0]

    def lookup_batch(
        self, contexts: Sequence[Tokens], max_match: int = DEFAULT_MAX_MATCH, min_match: int = DEFAULT_MIN_MATCH
    ) -> list[Match]:
        found = self._try(len(contexts), lambda: self.inner.lookup_batch(contexts, max_match, min_match))
        return [Match(0, 0)] * len(contexts) if found is None else found

    def draft(
        self,
        ids: Tokens,
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int = DEFAULT_MAX_NODES,
    ) -> DraftTree:
        return self.draft_batch([ids], max_match, min_match, max_depth, max_nodes)[0]

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES,
    ) -> list[DraftTree]:
        found = self._try(
            len(contexts), lambda: self.inner.draft_batch(contexts, max_match, min_match, max_depth, max_nodes)
        )
        return [DraftTree.empty() for _ in contexts] if found is None else found

    def info(self) -> dict[str, Any]:
        return self.inner.info()

    def close(self) -> None:
        self.inner.close()

    def _try(self, queries: int, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except SuffolkError as error:
            reason = type(error).__name__
            with self._lock:
                first = reason not in self._missed
                self._missed[reason] += queries
            if first:
                LOG.warning("no draft, decoding goes on without (further ones are only counted): %s: %s", reason, error)
            return None
