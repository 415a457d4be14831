"""Retrievers whose answers arrive later: on demand, at once, or never."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import SuffolkError, Unavailable
from tests.support.brute_force import BruteForceRetriever


class LaterBruteForce(BruteForceRetriever):
    """The oracle as a ``AsyncRetriever``.

    ``prompt``: whether calls finish at once; otherwise they wait for ``answer``. ``later``: the contexts of each
    asynchronous call, as lists.
    """

    deadline = 0.05

    def __init__(self, documents: Sequence[Sequence[int]], vocab_size: int, prompt: bool = True) -> None:
        super().__init__(documents, vocab_size)
        self.prompt = prompt
        self.healthy = True
        self.later: list[list[list[int]]] = []
        self.open: list[tuple[Future[list[DraftTree]], ContextQuery]] = []

    def draft_batch_future(self, query: ContextQuery) -> Future[list[DraftTree]]:
        self.later.append([list(map(int, context)) for context in query.contexts])
        future: Future[list[DraftTree]] = Future()
        self.open.append((future, query))
        if self.prompt:
            self.answer()
        return future

    def answer(self) -> None:
        """Finish all open calls, with their answers or with ``fault``."""
        while self.open:
            future, query = self.open.pop(0)
            try:
                future.set_result(self.find_drafts(query))
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

    def draft_batch_future(self, query: ContextQuery) -> Future[list[DraftTree]]:
        chance = self._rng.random()
        self.prompt = chance > 0.2
        self.fault = Unavailable("the service is gone") if chance > 0.9 else None
        future = super().draft_batch_future(query)
        if not self.prompt:
            threading.Timer(2 * self.deadline, self.answer).start()
        return future
