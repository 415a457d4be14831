"""A retriever that answers later: when a test says so, at once, or never."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from datastore.draft_tree import DraftTree
from datastore.errors import SuffolkError
from datastore.retriever import Tokens
from tests.brute_force import BruteForceRetriever


class LaterBruteForce(BruteForceRetriever):
    """The oracle as a ``LaterRetriever``. ``prompt``: whether calls are answered at once; else they wait for ``answer``.

    ``later``: contexts of each call that nobody had to wait for, as lists.
    """

    deadline = 0.05

    def __init__(self, documents: Sequence[Sequence[int]], vocab_size: int, prompt: bool = True) -> None:
        super().__init__(documents, vocab_size)
        self.prompt = prompt
        self.answering = True
        self.later: list[list[list[int]]] = []
        self.open: list[tuple[Future[list[DraftTree]], tuple[object, ...]]] = []

    def draft_batch_later(
        self,
        contexts: Sequence[Tokens],
        max_match: int = 16,
        min_match: int = 1,
        max_depth: int = 10,
        max_nodes: int | Sequence[int] = 64,
    ) -> Future[list[DraftTree]]:
        self.later.append([list(map(int, context)) for context in contexts])
        future: Future[list[DraftTree]] = Future()
        self.open.append((future, (contexts, max_match, min_match, max_depth, max_nodes)))
        if self.prompt:
            self.answer()
        return future

    def answer(self) -> None:
        """End all open calls, with their answers or with ``fault``."""
        while self.open:
            future, asked = self.open.pop(0)
            try:
                future.set_result(self.draft_batch(*asked))  # type: ignore[arg-type]
                self.answering = True
            except SuffolkError as error:
                self.answering = False
                future.set_exception(error)
