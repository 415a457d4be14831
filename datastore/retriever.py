"""What every datastore can be asked, wherever it lives: on disk, in memory, or behind gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree

Tokens = Sequence[int] | npt.NDArray[np.integer[Any]]
"""Token ids, oldest first: a list of ints or a one-dimensional integer array."""

DEFAULT_MAX_MATCH = 16
DEFAULT_MIN_MATCH = 1
DEFAULT_MAX_DEPTH = 10
DEFAULT_MAX_NODES = 64
MAX_NODES = 1024
"""Nodes of one draft tree that a service sends or a target verifies."""


class Match(NamedTuple):
    """How many tokens at the context's end were found, and how often; (0, 0) if none."""

    length: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody misses on a pair of numbers


class Retriever(Protocol):
    """Longest-suffix lookups and draft trees (REST, He et al. 2023, section 3). Implementations are thread-safe.

    Contexts may be of any length; only their last ``max_match`` tokens are used. All methods raise InvalidArgument for ids
    outside the vocabulary, for ``min_match`` > ``max_match``, and for ``max_match + max_depth`` above the order depth.
    """

    @property
    def name(self) -> str:
        """What people call it: its folder's name, or that on its server."""
        ...

    @property
    def vocab_size(self) -> int:
        """Its ids are below it; known without a call."""
        ...

    def lookup(self, ids: Tokens, max_match: int = 16, min_match: int = 1) -> Match:
        """The longest suffix of ``ids`` (of min_match..max_match tokens) that occurs, with its exact count."""
        ...

    def lookup_batch(self, contexts: Sequence[Tokens], max_match: int = 16, min_match: int = 1) -> list[Match]:
        """One ``lookup`` per context, in order."""
        ...

    def draft(
        self, ids: Tokens, max_match: int = 16, min_match: int = 1, max_depth: int = 10, max_nodes: int = 64
    ) -> DraftTree:
        """The ``max_nodes`` most frequent paths that follow the longest match, as a tree sorted by falling count."""
        ...

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = 16,
        min_match: int = 1,
        max_depth: int = 10,
        max_nodes: int | Sequence[int] = 64,
    ) -> list[DraftTree]:
        """One ``draft`` per context, in order; ``max_nodes`` may differ per context."""
        ...

    def info(self) -> dict[str, Any]:
        """Facts about the datastore: generation, tokens, documents, segments, vocab_size, order_depth, tokenizer, bytes."""
        ...

    def close(self) -> None:
        """Give back files and connections; later calls raise."""
        ...
