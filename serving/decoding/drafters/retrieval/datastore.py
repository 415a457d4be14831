"""The datastore drafter drafts from a datastore in this process or over gRPC (REST, He et al. 2023, section 3)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

import numpy as np

from suffolk.datastore import _native
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree, validate_all
from suffolk.datastore.errors import DeadlineExceeded, Internal, SuffolkError
from suffolk.datastore.limits import MAX_BATCH, MAX_BATCH_NODES
from suffolk.datastore.retriever import AsyncRetriever, Retriever
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration, Part
from suffolk.serving.decoding.drafters.calibration.calibrator import Prior
from suffolk.serving.decoding.drafters.retrieval.inflight_call import WaitPolicy, group_argument
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.drafters.retrieval.prefetch import DraftPrefetcher
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import (
    NO_TOKENS,
    Ids,
    RetrievalScorer,
    known_end,
    nodes_wanted,
)
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated

PRIOR = Prior(constant=-1.85, match=0.12, share=0.76, count=0.09, depth=0.14)
"""Fitted to the acceptance of drafts from 109 M tokens of source code by a 135M chat model, along its own answers.

The prompts come from ``research.tuning_prompts``; ``research.fit_priors`` makes the fit.
"""

SHORT_MATCHES = (4, 3, 2, 1)
"""Lengths of shorter endings to look up besides the longest match, because a rare long match leaves most nodes unused.

Calibration compares their drafts.
"""
_Contexts = list[list[Ids]]  # for each request: the contexts to look up
_GROUP = "group"
"""The scope (``ContextQuery``) of the documents of a request's group, and the name of this part in the calibration."""


class DatastoreDrafter(RetrievalSource):
    """Makes one ``find_drafts`` call for all requests of a step that search the same datastores.

    A call with too many contexts for a draft service is divided (``MAX_BATCH``).

    In a local datastore, a second call searches only the groups of the requests. Texts repeat the documents of their group more
    often, so the trees of a group have calibrators of their own. In a remote datastore, one call searches all documents, because
    a call takes time.

    A failed call gives no drafts. Failures are counted by reason, and the first of each reason is logged. Not
    thread-safe.

    Attributes:
        datastores: the names of its datastores (``DatastoreReader``). Requests get drafts from the datastores that they
            select.
    """

    name = "datastore"

    def __init__(
        self,
        retriever: Retriever,
        vocab_size: int,
        limits: Limits | None = None,
        calibration: Calibration | Part | None = None,
        prefetch: bool | None = None,
        short_matches: Sequence[int] = SHORT_MATCHES,
    ) -> None:
        """``close`` leaves ``retriever`` open.

        Args:
            vocab_size: the target's. A tree with other ids is a failed draft.
            calibration: the calibrators, stored under the datastore's name.
            prefetch: for a remote datastore: True to prefetch every draft, False to wait for every answer, None to choose the
                faster of both in each step.
            short_matches: lengths of shorter endings to look up besides the longest match.

        Raises:
            InvalidArgument: ``retriever`` is a draft service, and ``limits`` are deeper than its drafts.
        """
        self._retriever = retriever
        self.datastores = retriever.names
        self._vocab_size = vocab_size
        self._knows_all = retriever.vocab_size >= vocab_size
        self._limits = limits or Limits()
        shorter = [length for length in short_matches if self._limits.min_match <= length < self._limits.max_match]
        self._lengths = (self._limits.max_match, *shorter)
        self._scorer = RetrievalScorer(calibration or Calibration(), f"{self.name} {retriever.name}", PRIOR)
        self._prefetcher = None
        self._has_groups = retriever.has_groups and not isinstance(retriever, AsyncRetriever)
        if isinstance(retriever, AsyncRetriever):
            self._limits.require_served()
            if prefetch is not False:
                self._prefetcher = DraftPrefetcher(retriever, self._limits)
        self._always_prefetches = bool(prefetch)
        self._wait_policy = WaitPolicy()
        self._pass_seconds = 0.0  # the time of the target's plain pass in this step; 0 if unknown
        self._waits = True  # whether this step waits for its drafts, instead of prefetching the next ones
        self._calls = 0
        self._lost = False  # whether the last call got no answer
        self.failures = DraftFailures("datastore drafter")

    def draft(self, requests: Sequence[DraftRequest]) -> _native.Drafts:
        """Looks up the longest match, and shorter endings."""
        selected = [at for at, each in enumerate(requests) if self._searched(each)]
        if len(selected) == len(requests) > 0:
            return self._draft(requests)
        found = [(self._draft([requests[at] for at in selected]), selected)] if selected else []
        return _native.gather(found, len(requests))

    def _draft(self, requests: Sequence[DraftRequest]) -> _native.Drafts:
        self._calls += 1
        self._pass_seconds = sum(each.budget.token_seconds for each in requests)
        self._waits = self._prefetcher is None or (
            not self._always_prefetches and self._wait_policy.should_wait(self._pass_seconds)
        )
        lengths = self._lengths[: max(1, MAX_BATCH // max(1, len(requests)))]  # if possible, one call for all
        ends = (self._end(request, NO_TOKENS) for request in requests)
        endings = [[end[-length:] for length in lengths] for end in ends]
        self._scorer.begin(requests)
        found = self._find(requests, endings, "store" if self._has_groups else None)
        grouped = [at for at, each in enumerate(requests) if each.options.group] if self._has_groups else []
        if grouped:
            of_groups = self._find([requests[at] for at in grouped], [endings[at] for at in grouped], _GROUP)
            found = _native.gather([(found, range(len(requests))), (of_groups, grouped)], len(requests))
        self._learn_waiting(found)
        return found

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """Trees are empty if ``draft`` got no answer in this step, or did not wait for one."""
        found = [[DraftTree.empty()] * len(each) for each in paths]
        searching = [at for at, each in enumerate(requests) if self._searched(each)]
        places = [(at, number) for at in searching for number in range(len(paths[at]))]
        if self._lost or not self._waits or not places:
            return found
        behind = [paths[at][number] for at, number in places]
        queries = [requests[at] for at, _ in places]
        contexts = [[self._end(request, path)] for request, path in zip(queries, behind, strict=True)]
        for (at, number), drafted in zip(places, self._find(queries, contexts, None, behind), strict=True):
            found[at][number] = (*drafted, DraftTree.empty())[0]
        return found

    @property
    def prefetches(self) -> bool:
        """See ``PrefetchingDrafter``."""
        return self._prefetcher is not None and (self._always_prefetches or self._wait_policy.prefetches)

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """See ``PrefetchingDrafter``. A call that cannot be made counts as a failure when its draft is needed."""
        if self._prefetcher is not None and self.prefetches:
            chosen = [at for at, each in enumerate(requests) if self._searched(each) == self.datastores]
            with suppress(SuffolkError):
                self._prefetcher.prefetch([requests[at] for at in chosen], [trees[at] for at in chosen], self._lengths)

    def observe(self, generated: Generated) -> None:
        self._scorer.observe(generated)

    def release(self, request_id: int) -> None:
        self._scorer.release(request_id)

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls} | (self._prefetcher.stats() if self._prefetcher else {}) | self.failures.stats()

    def close(self) -> None:
        self._scorer.clear()

    def _searched(self, request: DraftRequest) -> tuple[str, ...]:
        """The datastores of this drafter that ``request`` searches."""
        if request.options.datastores is None:
            return self.datastores
        return tuple(name for name in self.datastores if request.options.searches(name))

    def _end(self, request: DraftRequest, path: Ids) -> Ids:
        """The ending of the text with ``path`` appended. It starts after the last id that the retriever does not know."""
        most = self._limits.max_match
        end = request.tokens[-most:]
        text = np.concatenate([end, path])[-most:] if len(path) else end
        return text if self._knows_all else known_end(text, self._retriever.vocab_size)

    def _find(
        self,
        requests: Sequence[DraftRequest],
        contexts: _Contexts,
        scope: str | None,
        paths: Sequence[Ids] | None = None,
    ) -> _native.Drafts:
        """The largest calibrated tree of each match length of each request. ``paths``: as in ``RetrievalScorer.score``."""
        trees = self._look_up(requests, contexts, scope)
        return self._scored(requests, trees, list(map(len, contexts)), paths, _GROUP if scope == _GROUP else "")

    def _look_up(self, requests: Sequence[DraftRequest], contexts: _Contexts, scope: str | None) -> Sequence[DraftTree]:
        """One tree for each context, one request after another; empty after an error. ``scope``: as in ``ContextQuery``."""
        self._lost = True
        try:
            if self._prefetcher is not None and not self._waits:
                found = self._prefetcher.draft(requests, contexts)
                trees: Sequence[DraftTree] = [
                    tree if self._searched(request) == self.datastores else DraftTree.empty()
                    for request, each in zip(requests, found, strict=True)
                    for tree in each
                ]
            else:
                trees = self._call(requests, contexts, scope)
        except SuffolkError as error:
            self.failures.add(type(error).__name__, str(error))
            return [DraftTree.empty()] * sum(map(len, contexts))
        self._lost = False
        return trees

    def _learn_waiting(self, found: Sequence[Sequence[DraftTree]]) -> None:
        """Update the wait policy from the calibrated trees of the step and from the durations of prefetch calls."""
        if self._prefetcher is None:
            return
        for seconds in self._prefetcher.durations():
            self._wait_policy.learn_call(seconds)
        if not self._lost:
            for trees in found:
                expected = max((float(tree.scores.sum()) for tree in trees), default=0.0)
                self._wait_policy.learn_draft(expected, self._waits)

    def _call(self, requests: Sequence[DraftRequest], contexts: _Contexts, scope: str | None) -> Sequence[DraftTree]:
        """One call for all requests that search the same datastores."""
        places: dict[tuple[str, ...], list[int]] = {}
        for at, request in enumerate(requests):
            places.setdefault(self._searched(request), []).append(at)
        if list(places) == [self.datastores]:
            return self._call_part(self._retriever, requests, contexts, scope)
        found: dict[int, Iterator[DraftTree]] = {}
        for names, chosen in places.items():
            part = self._retriever if names == self.datastores else self._retriever.select(names)
            trees = self._call_part(part, [requests[at] for at in chosen], [contexts[at] for at in chosen], scope)
            found |= dict.fromkeys(chosen, iter(trees))
        return [tree for at, each in enumerate(contexts) for tree in islice(found[at], len(each))]

    def _call_part(
        self, retriever: Retriever, requests: Sequence[DraftRequest], contexts: _Contexts, scope: str | None
    ) -> Sequence[DraftTree]:
        if scope is not None and not retriever.has_groups:
            if scope == _GROUP:
                return [DraftTree.empty()] * sum(map(len, contexts))
            scope = None
        limits = self._limits
        flat = [context for each in contexts for context in each]
        most = MAX_BATCH_NODES // max(1, min(len(flat), MAX_BATCH))
        budgets: list[int] = []
        groups: list[str | None] = []
        for request, each in zip(requests, contexts, strict=True):
            budgets += [min(nodes_wanted(request), most)] * len(each)
            groups += [request.options.group] * len(each)
        begin = time.perf_counter()
        parts: list[Sequence[DraftTree]] = []
        try:
            for start in range(0, len(flat), MAX_BATCH):
                part = slice(start, start + MAX_BATCH)
                group = group_argument(retriever, groups[part])
                query = ContextQuery(
                    flat[part],
                    limits.max_match,
                    limits.min_match,
                    limits.max_depth,
                    budgets[part],
                    group,
                    scope,
                    patience=self._pass_seconds,  # an answer after more than a pass saves less than it costs
                )
                parts.append(retriever.find_drafts(query))
        except DeadlineExceeded:  # other errors come immediately, so their time says nothing about answers
            self._wait_policy.learn_timeout(time.perf_counter() - begin)
            raise
        self._wait_policy.learn_call(time.perf_counter() - begin)
        if (found := sum(map(len, parts))) != len(flat):
            raise Internal(f"{found} trees came for {len(flat)} contexts")
        return parts[0] if len(parts) == 1 else [tree for part in parts for tree in part]

    def _scored(
        self,
        requests: Sequence[DraftRequest],
        trees: Sequence[DraftTree],
        counts: Sequence[int],
        paths: Sequence[Ids] | None,
        origin: str,
    ) -> _native.Drafts:
        """The trees of each request with calibrated scores; none for a request with a malformed tree.

        ``counts``: how many of ``trees`` each request has. ``paths``, ``origin``: as in ``RetrievalScorer.score``.
        """
        try:
            found = _native.largest_trees(trees, counts)
            validate_all(found.trees, self._vocab_size)
            return self._scorer.score(requests, found, paths, origin)
        except SuffolkError as error:
            if len(requests) == 1:
                self.failures.add(type(error).__name__, str(error))
                return _native.Drafts([()])
        left, alone = iter(trees), []  # find the requests with malformed trees
        for at, (request, count) in enumerate(zip(requests, counts, strict=True)):
            path = None if paths is None else [paths[at]]
            alone.append((self._scored([request], list(islice(left, count)), [count], path, origin), [at]))
        return _native.gather(alone, len(requests))
