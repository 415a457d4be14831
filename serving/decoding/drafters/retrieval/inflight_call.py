"""Sends draft calls without waiting, at most one at a time, and decides whether a step waits for the reply."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import NoneType

import numpy as np

from suffolk.datastore.context_query import ContextQuery, Groups
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded, Internal
from suffolk.datastore.limits import MAX_DEPTH
from suffolk.datastore.retriever import AsyncRetriever, Retriever
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate
from suffolk.serving.decoding.engine.policy.constants import MARGIN, RECOVERY, TRIALS

_KNOWN = 3
"""Calls to wait for before their duration counts as known."""
_CALLS = 8
"""Number of recent calls, of which the fastest is used, because slower calls include other load on the machine."""
_EXPECTED = 0.5
"""Prior of the expected tokens of a draft that was waited for."""
_SHARE = 0.6
"""Prior of a prefetched draft's expected tokens, as a share of the tokens of a draft that was waited for."""


class WaitPolicy:
    """Compares the tokens per second of waiting and of prefetching. Not thread-safe.

    Waiting costs the time of a call and gives a whole draft. Prefetching costs no time and gives a part of a draft. While drafts
    are prefetched, waiting is tried now and then, as ``DraftGate`` tries a source. After a missed deadline, no step waits until
    a call is answered within that deadline or a trial is due.

    Attributes:
        prefetches: whether to prefetch the drafts of the next step.
    """

    def __init__(self) -> None:
        self.prefetches = False
        self._seconds: deque[float] = deque(maxlen=_CALLS)
        self._stalled = False
        self._missed = 0.0  # the last missed deadline
        self._expected, self._share = Estimate(_EXPECTED), Estimate(_SHARE)
        self._saved = 0.0  # in passes of the target, for the next trial

    def should_wait(self, pass_seconds: float) -> bool:
        """Whether to wait in this step. ``pass_seconds``: the time of the target's plain pass; 0 if unknown."""
        if not pass_seconds or len(self._seconds) < _KNOWN:
            self.prefetches = False
            return True
        cost = min(self._seconds) / pass_seconds
        waiting = (1 + self._expected.value) / (1 + cost)
        prefetching = 1 + self._share.value * self._expected.value
        self.prefetches = self._stalled or prefetching > (1.0 if self.prefetches else MARGIN) * waiting
        self._saved = self._saved + TRIALS if self.prefetches else 0.0
        if self._saved < cost:
            return not self.prefetches
        self._saved = 0.0
        return True

    def learn_call(self, seconds: float) -> None:
        """Learn that an answer took ``seconds``. A step that waits would have missed an answer after the deadline."""
        self._stalled = self._stalled and seconds >= self._missed
        self._seconds.append(seconds)

    def learn_timeout(self, seconds: float) -> None:
        """Learn that no answer came within a deadline of ``seconds``. Forgets earlier, faster calls."""
        self._stalled, self._missed = True, seconds
        self._seconds.clear()
        self._seconds.extend([seconds] * _KNOWN)

    def learn_draft(self, tokens: float, waited: bool) -> None:
        """Learn that a draft has ``tokens`` expected tokens. ``waited``: whether a step waited for it; else it was prefetched."""
        if waited:
            self._expected.add(tokens)
            self._share.fade(RECOVERY)
        elif self._expected.value > 0:
            self._share.add(min(1.0, tokens / self._expected.value))


_MOST_ENDS = 6
"""The most ends that ``likely_ends`` predicts."""
_LEAST = 0.02
"""The least probability of a predicted end."""


def likely_ends(tree: DraftTree) -> list[Ids]:
    """The paths, int32[depth] each, after which the target most likely leaves ``tree``, most likely first.

    The target leaves at a node if it accepts the node's path and none of its children. The root has an empty path.
    """
    chances = np.append(tree.scores.astype(np.float64), 1.0)  # the last entry is the root's: its index is -1
    np.subtract.at(chances, tree.parents, tree.scores)
    best = np.argsort(-chances, kind="stable")[:_MOST_ENDS]
    return [_path(tree, int(node) if node < len(tree) else -1) for node in best[chances[best] >= _LEAST]]


def subtree(tree: DraftTree, token: int, max_nodes: int) -> DraftTree:
    """The draft for the context of ``tree`` with ``token`` appended, one level less deep; empty if the tree lacks ``token``.

    The subtree is the exact draft: if ``token`` follows the longest match of a context, this match with ``token`` is the longest
    match of the longer context. If ``tree`` was cut to its best nodes, the subtree is incomplete.
    """
    if tree.counts is None:
        return DraftTree.empty()
    tops = np.flatnonzero((tree.parents == -1) & (tree.tokens == token) & (tree.counts > 0))
    if not len(tops):
        return DraftTree.empty()
    top = int(tops[0])
    places = {top: -1}  # node below ``top`` -> its index in the subtree
    for node, parent in enumerate(tree.parents.tolist()):
        if parent in places:
            places[node] = len(places) - 1
    nodes = list(places)[1 : max_nodes + 1]
    count = int(tree.counts[top])
    return DraftTree(
        tree.tokens[nodes],
        np.asarray([places[parent] for parent in tree.parents[nodes].tolist()], np.int32),
        (tree.counts[nodes] / count).astype(np.float32),
        tree.sources[nodes],
        tree.counts[nodes],
        tree.match_length + 1,
        count,
    )


def _path(tree: DraftTree, node: int) -> Ids:
    """The tokens on the path from the root to ``node``."""
    path = []
    while node >= 0:
        path.append(int(tree.tokens[node]))
        node = int(tree.parents[node])
    return np.asarray(path[::-1], np.int32)


_TIMES = 8
"""The most durations of calls that are kept."""
Query = tuple[Ids, str | None]
"""A context and its group."""


class InflightCall:
    """At most one call in flight, and the answer of the last call. Not thread-safe.

    A dropped call runs to its deadline, and no other call is sent until then. So a busy service gets no second call. A stalled
    service still opens the circuit breaker.
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
        """Drop the last answer, and take the next one if it has come. Raises SuffolkError if the call failed."""
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
