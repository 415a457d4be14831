"""A retriever that answers from the oracle. It is slow and evidently correct, and can pause within a call."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from suffolk.datastore.context_query import ContextQuery, Tokens
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, Unavailable
from suffolk.datastore.retriever import Match, Retriever
from suffolk.serving.decoding.drafters.registry import source_bits
from tests.support import oracle


class BruteForceRetriever(Retriever):
    """A ``Retriever`` over documents that are lists.

    ``gate``: an event that calls wait for; it is set at first. ``entered``: set when a call waits. ``fault``: an error
    that every call raises; None for none.
    """

    name = "brute-force"
    vocab_size = 0

    def __init__(self, documents: Sequence[Sequence[int]], vocab_size: int, order_depth: int = 64) -> None:
        self.documents = [list(document) for document in documents]
        self.vocab_size = vocab_size
        self.order_depth = order_depth
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.fault: Exception | None = None
        self.calls: list[int] = []
        self.closed = False

    def find_matches(self, query: ContextQuery) -> list[Match]:
        self._enter(query.contexts, query.max_match, 0)
        return [
            Match(*oracle.lookup(self.documents, list(ids), query.max_match, query.min_match)) for ids in query.contexts
        ]

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        self._enter(query.contexts, query.max_match, query.max_depth)
        bounds = (query.max_match, query.min_match, query.max_depth)
        least = query.least_counts or [1] * len(query.contexts)
        return [
            self._tree(list(ids), *bounds, budget, count)
            for ids, budget, count in zip(query.contexts, query.budgets, least, strict=True)
        ]

    def count_documents(self, query: ContextQuery, most: int) -> list[int]:
        return [min(most, oracle.holders(self.documents, list(ids))) for ids in query.contexts]

    def tokenizer(self) -> None:
        return None

    def info(self) -> dict[str, Any]:
        return {
            "path": "/a/secret/place",
            "generation": 7,
            "tokens": sum(map(len, self.documents)),
            "documents": len(self.documents),
            "vocab_size": self.vocab_size,
            "order_depth": self.order_depth,
        }

    def close(self) -> None:
        self.closed = True

    def _enter(self, contexts: Sequence[Tokens], max_match: int, max_depth: int) -> None:
        self.calls.append(len(contexts))
        self.entered.set()
        self.gate.wait(30)
        if self.fault is not None:
            raise self.fault
        if self.closed:
            raise Unavailable("the retriever is closed; open it again")
        if max_match + max_depth > self.order_depth:
            raise InvalidArgument(f"max_match + max_depth is {max_match + max_depth}, above {self.order_depth}")
        for ids in contexts:
            for token in list(ids)[-max_match:]:
                if not 0 <= token < self.vocab_size:
                    raise InvalidArgument(f"token id {token} is not in the vocabulary of {self.vocab_size}")

    def _tree(
        self, ids: list[int], max_match: int, min_match: int, max_depth: int, max_nodes: int, least: int
    ) -> DraftTree:
        length, count = oracle.lookup(self.documents, ids, max_match, min_match)
        nodes = oracle.draft(self.documents, ids, max_match, min_match, max_depth, max_nodes)
        nodes = [(path, found) for path, found in nodes if found >= least]
        places = {path: place for place, (path, _) in enumerate(nodes)}
        return DraftTree(
            np.array([path[-1] for path, _ in nodes], np.int32),
            np.array([places[path[:-1]] if len(path) > 1 else -1 for path, _ in nodes], np.int32),
            np.array([found / count for _, found in nodes], np.float32),
            np.full(len(nodes), source_bits("datastore"), np.uint32),
            np.array([found for _, found in nodes], np.uint64),
            length,
            count,
        )


def assert_same_tree(actual: DraftTree, expected: DraftTree) -> None:
    for name in ("tokens", "parents", "scores", "sources", "counts"):
        ours, theirs = getattr(actual, name), getattr(expected, name)
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    assert (actual.match_length, actual.match_count) == (expected.match_length, expected.match_count)
