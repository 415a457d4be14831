"""Retrievers whose answers arrive later: on demand, at once, or never."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.datastore.retriever import Tokens
from tests.support.brute_force import BruteForceRetriever


class LaterBruteForce(BruteForceRetriever):
    """The oracle as a ``LaterRetriever``.

    ``prompt``: whether calls finish at once; otherwise they wait for ``answer``. ``later``: the contexts of each
    asynchronous call, as lists.
    """

    deadline = 0.05

    def __init__(self, documents: Sequence[Sequence[int]], vocab_size: int, prompt: bool = True) -> None:
        super().__init__(documents, vocab_size)
        self.prompt = prompt
        self.healthy = True
        self.later: list[list[list[int]]] = []
        self.open: list[tuple[Future[list[DraftTree]], tuple[object, ...], dict[str, Any]]] = []

    def draft_batch_future(
        self,
        contexts: Sequence[Tokens],
        max_match: int = 16,
        min_match: int = 1,
        max_depth: int = 10,
        max_nodes: int | Sequence[int] = 64,
        **group: Any,
    ) -> Future[list[DraftTree]]:
        self.later.append([list(map(int, context)) for context in contexts])
        future: Future[list[DraftTree]] = Future()
        self.open.append((future, (contexts, max_match, min_match, max_depth, max_nodes), group))
        if self.prompt:
            self.answer()
        return future

    def answer(self) -> None:
        """Finish all open calls, with their answers or with ``fault``."""
        while self.open:
            future, asked, group = self.open.pop(0)
            try:
                future.set_result(self.draft_batch(*asked, **group))  # type: ignore[arg-type]
                self.healthy = True
            except SuffolkError as error:
                self.healthy = False
                future.set_exception(error)


class UnreliableLater(LaterBruteForce):
    """Of ten calls, seven finish at once, two miss the deadline, and one fails."""

    deadline = 0.002

    def __init__(self, documents: Sequence[Sequence[int]], vocab_size: int, rng: np.random.Generator) -> None:
        super().__init__(documents, vocab_size)
        self._rng = rng

    def draft_batch_future(self, contexts: Sequence[Tokens], *bounds: Any) -> Future[list[DraftTree]]:
        chance = self._rng.random()
        self.prompt = chance > 0.2
        self.fault = Unavailable("the service is gone") if chance > 0.9 else None
        future = super().draft_batch_future(contexts, *bounds)
        if not self.prompt:
            threading.Timer(2 * self.deadline, self.answer).start()
        return future
