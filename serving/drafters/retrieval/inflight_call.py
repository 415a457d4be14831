"""One asynchronous draft call at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import NoneType
from typing import Protocol, runtime_checkable

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded, Internal
from suffolk.datastore.retriever import Retriever
from suffolk.serving.draft_service.limits import MAX_DEPTH
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.drafters.retrieval.next_draft import subtree
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids

_TIMES = 8


@runtime_checkable
class LaterRetriever(Retriever, Protocol):
    """A retriever that also takes asynchronous calls.

    Attributes:
        healthy: whether the last call that finished has succeeded.
    """

    @property
    def healthy(self) -> bool: ...

    def draft_batch_future(
        self,
        contexts: Sequence[Ids],
        max_match: int = 16,
        min_match: int = 1,
        max_depth: int = 10,
        max_nodes: int | Sequence[int] = 64,
    ) -> Future[list[DraftTree]]:
        """As ``draft_batch``, without waiting; the answer or an error comes in bounded time."""
        ...


class InflightCall:
    """At most one call in flight, and the answer of the last one. Not thread-safe.

    A dropped call runs to its own deadline, and no other is sent before: a stalled service is noticed by the circuit breaker, and
    gets no second call while it is busy with the first.
    """

    def __init__(self, retriever: LaterRetriever, limits: Limits) -> None:
        self._retriever, self._limits = retriever, limits
        self._call: Future[list[DraftTree]] | None = None
        self._contexts: list[bytes] | None = None  # None: dropped
        self._trees: dict[bytes, DraftTree] = {}
        self._durations: deque[float] = deque(maxlen=_TIMES)  # from the thread that ends calls; appending is atomic

    @property
    def busy(self) -> bool:
        """Whether a call is in flight, dropped or not."""
        return self._call is not None and not self._call.done()

    def send(self, contexts: Sequence[Ids], max_nodes: int) -> None:
        """Request trees one level deeper than drafts, with matches one token shorter: the next token of each context is unknown.

        Raises SuffolkError if that cannot be done.
        """
        limits, begin = self._limits, time.perf_counter()
        self._call = self._retriever.draft_batch_future(
            contexts,
            limits.max_match - 1,
            max(1, limits.min_match - 1),
            min(limits.max_depth + 1, MAX_DEPTH),
            max_nodes,
        )
        self._call.add_done_callback(lambda call: self._time(call, time.perf_counter() - begin))
        self._contexts = [context.tobytes() for context in contexts]

    def receive(self) -> None:
        """Replace the last answer by the one that has come, if any. Raises SuffolkError if its call failed."""
        self._trees = {}
        if self._call is None or self.busy:
            return
        call, self._call = self._call, None
        if self._contexts is not None:
            trees = call.result()
            if len(trees) != len(self._contexts):
                raise Internal(f"{len(trees)} trees came for {len(self._contexts)} contexts")
            self._trees = dict(zip(self._contexts, trees, strict=True))

    def drop(self) -> bool:
        """Drop the call in flight; whether there was one that was not dropped before."""
        late = self.busy and self._contexts is not None
        if late:
            self._contexts = None
        return late

    def durations(self) -> list[float]:
        """Seconds of the calls that ended since this was last called, by an answer or by their deadline."""
        return [self._durations.popleft() for _ in range(len(self._durations))]

    def found(self, ending: Ids, max_nodes: int) -> DraftTree:
        """The tree behind ``ending``, from the answer for all but its last token; empty without one."""
        before = self._trees.get(ending[:-1].tobytes()) if len(ending) else None
        return DraftTree.empty() if before is None else subtree(before, int(ending[-1]), max_nodes)

    def _time(self, call: Future[list[DraftTree]], seconds: float) -> None:
        """Keep the duration of ``call`` unless it failed at once, which tells nothing of how long an answer takes."""
        if not call.cancelled() and isinstance(call.exception(), DeadlineExceeded | NoneType):
            self._durations.append(seconds)
