"""One question at a time to a retriever that need not be waited for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
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
    """A retriever that can be asked without waiting for it.

    Attributes:
        deadline: seconds that a step waits at most.
        healthy: whether the last call that finished has succeeded.
    """

    deadline: float

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
        """As ``draft_batch``, but never waits: an answer or an error comes in bounded time."""
        ...


class InflightCall:
    """At most one call on its way, and what the last one brought. Not thread-safe.

    A call that is dropped is left to its own deadline, and no other is made before: so a service that stalls is noticed by whoever
    counts its failures, and gets no second question while it is busy with the first.
    """

    def __init__(self, retriever: LaterRetriever, limits: Limits) -> None:
        self._retriever = retriever
        self._limits = limits
        self._call: Future[list[DraftTree]] | None = None
        self._asked: list[bytes] | None = None
        self._trees: dict[bytes, DraftTree] = {}
        self._taken: deque[float] = deque(maxlen=_TIMES)  # from the thread that ends calls; appending is atomic

    @property
    def busy(self) -> bool:
        """Whether a call is on its way, dropped or not."""
        return self._call is not None and not self._call.done()

    @property
    def dropped(self) -> bool:
        """Whether a dropped one is."""
        return self.busy and self._asked is None

    def ask(self, contexts: Sequence[Ids], max_nodes: int, ahead: int = 0) -> None:
        """Send ``contexts``; ``ahead``: how many tokens of each are still to come, by which a match may grow.

        Raises SuffolkError if that cannot be done.
        """
        limits, begin = self._limits, time.perf_counter()
        self._call = self._retriever.draft_batch_future(
            contexts,
            limits.max_match - ahead,
            max(1, limits.min_match - ahead),
            min(limits.max_depth + ahead, MAX_DEPTH),  # ``ahead`` less where drafts are as deep as they may be
            max_nodes,
        )
        self._call.add_done_callback(lambda call: self._time(call, time.perf_counter() - begin))
        self._asked = [context.tobytes() for context in contexts]

    def take(self, seconds: float = 0.0) -> None:
        """Take over the answer, if it comes within ``seconds`` and was not dropped. Raises SuffolkError if its call failed."""
        if self._call is None or not wait((self._call,), 0.0 if self._asked is None else seconds).done:
            return
        call, self._call = self._call, None
        if self._asked is not None:
            trees = call.result()
            if len(trees) != len(self._asked):
                raise Internal(f"{len(trees)} trees came for {len(self._asked)} contexts")
            self._trees.update(zip(self._asked, trees, strict=True))

    def drop(self) -> bool:
        """Want no more what is on its way: whether something was."""
        late = self.busy and not self.dropped
        if late:
            self._asked = None
        return late

    def taken(self) -> list[float]:
        """Seconds that the last calls took, to their answer or their deadline, since this was asked last."""
        return [self._taken.popleft() for _ in range(len(self._taken))]

    def forget(self) -> None:
        """Forget what came."""
        self._trees.clear()

    def found(self, ending: Ids, max_nodes: int) -> DraftTree:
        """The tree behind ``ending``, from an answer for it, or for all but its last token; empty where there is none."""
        tree = self._trees.get(ending.tobytes())
        if tree is not None:
            return tree.head(max_nodes)
        before = self._trees.get(ending[:-1].tobytes())
        return DraftTree.empty() if before is None else subtree(before, int(ending[-1]), max_nodes)

    def _time(self, call: Future[list[DraftTree]], seconds: float) -> None:
        """``call`` ended; what failed at once says nothing of how long an answer takes."""
        if not call.cancelled() and isinstance(call.exception(), DeadlineExceeded | NoneType):
            self._taken.append(seconds)
