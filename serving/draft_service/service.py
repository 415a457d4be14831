"""The draft service without a transport: limits, admission, deadlines, metrics, and the call into the datastore."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, NotFound
from suffolk.datastore.retriever import Match, Retriever
from suffolk.serving.draft_service import limits, wire
from suffolk.serving.draft_service.metrics import Metrics
from suffolk.serving.transport.admission import Admission

STRETCH = 32
"""Queries worked on between two looks at the deadline."""

Contexts = Sequence[npt.NDArray[np.int32]]
Expired = Callable[[], bool]
"""Whether the caller has gone or its deadline has passed: what is left of its request is then dropped."""
T = TypeVar("T")


class Service:
    """Answers drafts and lookups from named datastores, for all transports of a server. Thread-safe."""

    def __init__(self, datastores: Mapping[str, Retriever], max_concurrent: int) -> None:
        self._datastores = dict(sorted(datastores.items()))
        self._tokenizers: dict[str, bytes] = {}  # packed by the first call for each
        self.admission = Admission(max_concurrent, "--max-concurrent")
        self.metrics = Metrics(self._datastores, self.admission.taken)

    def answer(self, transport: str, method: str, work: Callable[[], T]) -> T:
        """``work()``, admitted, timed, counted. Raises SuffolkError alone: our own faults are logged and become Internal."""
        with self.metrics.answering(transport, method), self.admission.enter():
            return work()

    def draft(
        self,
        name: str,
        contexts: Contexts,
        max_match: int,
        min_match: int,
        max_depth: int,
        budgets: Sequence[int],
        expired: Expired,
    ) -> list[DraftTree]:
        """One tree per context, of at most ``budgets[i]`` nodes each.

        Raises:
            InvalidArgument: a field is beyond its limit (limits.py), or the datastore refuses a value.
            NotFound: no datastore of that name.
            DeadlineExceeded: the caller no longer waits.
        """
        limits.check_match(max_match, min_match)
        limits.check_depth(max_depth)
        limits.check_nodes(budgets)
        datastore = self._find(name, contexts)
        trees: list[DraftTree] = []
        for start in range(0, max(1, len(contexts)), STRETCH):
            _check_wanted(expired, start, len(contexts))
            part = slice(start, start + STRETCH)
            trees += datastore.draft_batch(contexts[part], max_match, min_match, max_depth, budgets[part])
        self.metrics.batch("Draft", [tree.match_length for tree in trees], [len(tree) for tree in trees])
        return trees

    def lookup(self, name: str, contexts: Contexts, max_match: int, min_match: int, expired: Expired) -> list[Match]:
        """One match per context. Raises as ``draft``."""
        limits.check_match(max_match, min_match)
        datastore = self._find(name, contexts)
        matches: list[Match] = []
        for start in range(0, max(1, len(contexts)), STRETCH):
            _check_wanted(expired, start, len(contexts))
            matches += datastore.lookup_batch(contexts[start : start + STRETCH], max_match, min_match)
        self.metrics.batch("Lookup", [match.length for match in matches], [])
        return matches

    def info(self, name: str) -> dict[str, dict[str, Any]]:
        """Name -> facts of one datastore, or of all if ``name`` is empty; never where it lies on the server's disk."""
        names = [self._resolve(name)] if name else list(self._datastores)
        return {
            each: {key: fact for key, fact in self._datastores[each].info().items() if key != "path"} for each in names
        }

    def tokenizer(self, name: str) -> bytes:
        """The tokenizer.json of a datastore as a zstd frame (wire.py).

        Raises:
            NotFound: no datastore of that name, or it has no tokenizer.
            ResourceExhausted: the tokenizer is too large to send.
        """
        name = self._resolve(name)
        if name not in self._tokenizers:
            tokenizer = self._datastores[name].tokenizer()
            if tokenizer is None:
                raise NotFound(f"datastore {name} was built from token ids and has no tokenizer; pass token ids")
            self._tokenizers[name] = wire.pack_tokenizer(tokenizer)
        return self._tokenizers[name]

    def _find(self, name: str, contexts: Contexts) -> Retriever:
        limits.check_batch(len(contexts))
        for place, context in enumerate(contexts):
            limits.check_context(place, len(context))
        return self._datastores[self._resolve(name)]

    def _resolve(self, name: str) -> str:
        limits.check_name(name)
        known = ", ".join(self._datastores)
        if name in self._datastores:
            return name
        if name:
            raise NotFound(f"datastore: there is no {name!r}; this server has {known}")
        if len(self._datastores) != 1:
            raise InvalidArgument(f"datastore: no name was given and this server has several; choose one of {known}")
        return next(iter(self._datastores))


def _check_wanted(expired: Expired, done: int, total: int) -> None:
    if expired():
        raise DeadlineExceeded(
            f"the caller's deadline passed with {done} of {total} queries answered; allow more time or send fewer"
        )
