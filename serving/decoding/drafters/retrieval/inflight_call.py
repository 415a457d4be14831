"""Sends draft calls without waiting, at most one at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import NoneType

from suffolk.datastore.context_query import ContextQuery, Groups
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded, Internal
from suffolk.datastore.limits import MAX_DEPTH
from suffolk.datastore.retriever import AsyncRetriever, Retriever
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.next_draft import subtree
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids

_TIMES = 8
Query = tuple[Ids, str | None]
"""A context and its group."""


class InflightCall:
    """At most one call in flight, and the answer of the last call. Not thread-safe.

    A dropped call runs to its deadline, and no other call is sent until then. So the circuit breaker notices a stalled service,
    and a busy service gets no second call.
    """

    def __init__(self, retriever: AsyncRetriever, limits: Limits) -> None:
        self._retriever, self._limits = retriever, limits
        self._call: Future[list[DraftTree]] | None = None
        self._queries: list[tuple[bytes, str | None]] | None = None  # None: the call was dropped
        self._trees: dict[tuple[bytes, str | None], DraftTree] = {}
        # filled by the thread that ends calls; appending is atomic
        self._durations: deque[float] = deque(maxlen=_TIMES)

    @property
    def busy(self) -> bool:
        """Whether a call is in flight. A dropped call counts as in flight until it ends."""
        return self._call is not None and not self._call.done()

    def send(self, queries: Sequence[Query], max_nodes: int) -> None:
        """Request the trees after the contexts of ``queries``, one level deeper than drafts and with matches one token shorter.

        The extra level stands for the next token of each context, which is not known yet. Raises SuffolkError if the call cannot
        be sent.
        """
        limits, begin = self._limits, time.perf_counter()
        query = ContextQuery(
            [context for context, _ in queries],
            limits.max_match - 1,
            max(1, limits.min_match - 1),
            min(limits.max_depth + 1, MAX_DEPTH),
            max_nodes,
            group_argument(self._retriever, [group for _, group in queries]),
        )
        self._call = self._retriever.draft_batch_future(query)
        self._call.add_done_callback(lambda call: self._time(call, time.perf_counter() - begin))
        self._queries = [(context.tobytes(), group) for context, group in queries]

    def receive(self) -> None:
        """Replace the last answer by a new one if it has come. Raises SuffolkError if the call failed."""
        self._trees = {}
        if self._call is None or self.busy:
            return
        call, self._call = self._call, None
        if self._queries is not None:
            trees = call.result()
            if len(trees) != len(self._queries):
                raise Internal(f"{len(trees)} trees came for {len(self._queries)} contexts")
            self._trees = dict(zip(self._queries, trees, strict=True))

    def drop(self) -> bool:
        """Drop the call in flight. Returns whether a call was dropped."""
        late = self.busy and self._queries is not None
        if late:
            self._queries = None
        return late

    def durations(self) -> list[float]:
        """Seconds of the calls that ended since the last ``durations``, by an answer or by their deadline."""
        return [self._durations.popleft() for _ in range(len(self._durations))]

    def found(self, ending: Ids, group: str | None, max_nodes: int) -> DraftTree:
        """The tree after ``ending``, taken from the answer for ``ending`` without its last token; empty if there is none."""
        before = self._trees.get((ending[:-1].tobytes(), group)) if len(ending) else None
        return DraftTree.empty() if before is None else subtree(before, int(ending[-1]), max_nodes)

    def _time(self, call: Future[list[DraftTree]], seconds: float) -> None:
        """Store the duration of ``call``. Errors other than a missed deadline come immediately and are skipped."""
        if not call.cancelled() and isinstance(call.exception(), DeadlineExceeded | NoneType):
            self._durations.append(seconds)


def group_argument(retriever: Retriever, groups: Sequence[str | None]) -> Groups:
    """``groups`` if the retriever has groups and a context has one; else None."""
    return groups if retriever.has_groups and any(groups) else None
