"""Drafters behind a ``DraftGate``: each runs only if it is expected to add enough tokens to the drafts before it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.tree_paths import accepted_length
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.calibration.rescale import learn_tree, normalize_siblings, rescale
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource, as_drafts
from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures
from suffolk.serving.decoding.engine.loop.drafter import (
    Drafter,
    DraftRequest,
    FeatureDrafter,
    Generated,
    PrefetchingDrafter,
    Proposal,
    prefetches,
    tree_of,
)
from suffolk.serving.decoding.engine.policy.draft_gate import DraftGate, GateDecision

if TYPE_CHECKING:
    import torch


ANY_TOKEN = 2**31 - 1
"""A vocabulary size that allows every token."""
_GAIN = 1.0
"""Tokens that a neural drafter is expected to gain without retrieval, unless it has a ``prior_gain``."""


@dataclass(frozen=True, slots=True)
class _Draft:
    request: DraftRequest
    retrieved: DraftTree
    tree: DraftTree


class GatedDrafter:
    """One neural drafter of a ``HybridDrafter``, behind a ``DraftGate``. Not thread-safe.

    An error of the drafter discards only its own draft. Errors are counted by reason; the first of each is logged.

    Attributes:
        drafter: the drafter.
        name: the drafter's name.
        failures: drafts lost to errors.
        decisions: decisions of the last step, by request. ``run`` becomes False if the drafter returns no draft.
        seconds: time of its drafts and errors, without prefill.
    """

    def __init__(self, drafter: Drafter, confidence: Confidence, vocab_size: int = ANY_TOKEN) -> None:
        """Owns ``drafter``: ``close`` closes it.

        ``confidence`` calibrates its scores in the hybrid. ``vocab_size`` is the target's. A tree with other ids is a failed
        draft.
        """
        self.drafter = drafter
        self.name = drafter.name
        self.failures = DraftFailures(f"neural drafter {self.name}")
        self._confidence = confidence
        self._vocab_size = vocab_size
        self.seconds = 0.0
        self._prefill_seconds = 0.0
        self._gate = DraftGate(getattr(drafter, "prior_gain", _GAIN))
        self.decisions: dict[int, GateDecision] = {}
        self._drafts: dict[int, _Draft] = {}

    def add(self, requests: Sequence[DraftRequest], retrieved: Sequence[DraftTree]) -> list[list[DraftTree]]:
        """The drafter's trees for ``requests``; none if the gate decides against a request.

        ``retrieved``: the retrieved tree of each request. Only the nodes that are likely to be verified count.
        """
        retrieved = [tree.likely(each.budget.least_score) for tree, each in zip(retrieved, requests, strict=True)]
        self.decisions = {each.request_id: self._gate.decide(each.budget) for each in requests if self._may_run(each)}
        decided = [at for at, each in enumerate(requests) if each.request_id in self.decisions]
        running = [at for at in decided if self.decisions[requests[at].request_id].run]
        trees: list[list[DraftTree]] = [[] for _ in requests]
        for at, tree in self._draft(requests, running):
            trees[at].append(rescale(self._confidence, requests[at], tree))
            self._drafts[requests[at].request_id] = _Draft(requests[at], retrieved[at], tree)
        return trees

    def observe(self, generated: Generated) -> None:
        """Learn how many tokens the drafter added, and call the drafter's ``observe``."""
        drafted = {request_id: tokens for request_id, tokens in generated.items() if request_id in self._drafts}
        for request_id, tokens in drafted.items():
            draft, most = self._drafts.pop(request_id), len(tokens) - 1
            alone = min(most, accepted_length([draft.tree.head(draft.request.max_nodes)], tokens))
            before = min(most, accepted_length([draft.retrieved], tokens))
            self._gate.added.learn(draft.request.budget.expected, max(0, alone - before), alone)
            learn_tree(self._confidence, draft.request, draft.tree, tokens)
        if drafted:
            with self.failures.guard():
                self.drafter.observe(drafted)

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """See ``FeatureDrafter``. The drafter must be one."""
        assert isinstance(self.drafter, FeatureDrafter)
        with self.failures.guard():
            self.drafter.follow(request_id, features)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)
        with self.failures.guard():
            self.drafter.release(request_id)

    def stats(self) -> dict[str, float]:
        """The drafter's counters plus ``failures``, and the numbers of requests for which it "ran" and was "skipped"."""
        counters: dict[str, float] = {}
        with self.failures.guard():
            counters.update(self.drafter.stats())
        for name, count in self.failures.stats().items():
            counters[name] = counters.get(name, 0) + count
        return counters | {"ran": self._gate.ran, "skipped": self._gate.skipped}

    def _may_run(self, request: DraftRequest) -> bool:
        if not request.budget.model_seconds:
            self._gate.skipped += 1
        return request.budget.model_seconds > 0

    def _draft(self, requests: Sequence[DraftRequest], running: Sequence[int]) -> list[tuple[int, DraftTree]]:
        """Run the drafter for the requests at the indices ``running``; returns (index, tree) pairs.

        An empty tree is no evidence for the gate. An error counts as a draft without gain.
        """
        if not running:
            return []
        queries = [requests[at] for at in running]
        prefill, begin = self._prefill(), time.perf_counter()
        found = self._propose(queries)
        seconds = max(0.0, time.perf_counter() - begin - (self._prefill() - prefill))
        drafts = [(at, tree) for at, tree in zip(running, found, strict=True) if tree]
        faults = [request for request, tree in zip(queries, found, strict=True) if tree is None]
        if drafts or faults:
            self.seconds += seconds
            share = seconds / (len(drafts) + len(faults))
            budgets = [requests[at].budget for at, _ in drafts]
            rows = [
                len(tree.likely(each.least_score)) * each.row_seconds
                for (_, tree), each in zip(drafts, budgets, strict=True)
            ]
            if rows:
                self._gate.learn_cost(share, fmean(rows))
            else:  # an early error must not make the drafter look cheap
                self._gate.learn_cost(max(share, self._gate.seconds))
        for request in faults:
            self._gate.added.learn(request.budget.expected, 0, 0)
        for request, tree in zip(queries, found, strict=True):
            if not tree:
                self.decisions[request.request_id] = replace(self.decisions[request.request_id], run=False)
        return drafts

    def _propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree | None]:
        """The drafter's tree for each of ``requests``; None for a failed draft."""
        with self.failures.guard(len(requests)):
            proposals = self.drafter.propose(requests)
            if len(proposals) != len(requests):
                raise InvalidArgument(f"{len(proposals)} trees came for {len(requests)} requests")
            return [self._check(request, each) for request, each in zip(requests, proposals, strict=True)]
        return [None] * len(requests)

    def _check(self, request: DraftRequest, proposal: Proposal) -> DraftTree | None:
        with self.failures.guard():
            return normalize_siblings(tree_of(proposal).validate(self._vocab_size).head(request.max_nodes))
        return None

    def _prefill(self) -> float:
        """Seconds of the drafter's prefill so far. No single draft is charged for them, because later drafts use the prefill."""
        with self.failures.guard():
            self._prefill_seconds = float(self.drafter.stats().get("prefill_seconds", 0.0))
        return self._prefill_seconds

    def close(self) -> None:
        self._drafts.clear()
        with self.failures.guard():
            self.drafter.close()


_SOURCE_GAIN = 1.0
"""Tokens that a source is expected to gain without others. It must be high enough that each source is tried."""


class GatedSource:
    """One retrieval source of a ``HybridDrafter``, behind a ``DraftGate``. Not thread-safe.

    Attributes:
        source: the source, which ``close`` closes.
        name: the source's name.
    """

    def __init__(self, source: RetrievalSource) -> None:
        self.source = source
        self.name = source.name
        self._prefetching = source if isinstance(source, PrefetchingDrafter) else None
        self._gate = DraftGate(_SOURCE_GAIN)
        self._drafts: dict[int, tuple[_native.Drafts, int, float]] = {}
        """Request -> the drafts of its step, its place in them, and the tokens expected of the sources before this one."""

    def draft(self, requests: Sequence[DraftRequest], expected: Sequence[float]) -> tuple[_native.Drafts, list[int]]:
        """The trees of ``RetrievalSource.draft`` for the requests that the gate lets draft, and the places of these
        requests.

        ``expected``: tokens expected of the sources before this one, for each of ``requests``.
        """
        running = [at for at, tokens in enumerate(expected) if self._gate.runs(requests[at].budget, tokens)]
        if not running:
            return _native.Drafts([]), running
        begin = time.perf_counter()
        drafts = as_drafts(self.source.draft([requests[at] for at in running]))
        self._gate.learn_cost((time.perf_counter() - begin) / len(running))
        for place, at in enumerate(running):
            self._drafts[requests[at].request_id] = drafts, place, expected[at]
        return drafts, running

    @property
    def prefetches(self) -> bool:
        """See ``PrefetchingDrafter``."""
        return prefetches(self._prefetching)

    def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
        """See ``PrefetchingDrafter``. Leaves out requests for which the source did not draft in this step."""
        drafted = [at for at, each in enumerate(requests) if each.request_id in self._drafts]
        if drafted and self._prefetching is not None:
            self._prefetching.prefetch([requests[at] for at in drafted], [trees[at] for at in drafted])

    def observe(self, generated: Generated, drafted: dict[int, int]) -> None:
        """Learn how many tokens the source added, and call the source's ``observe``.

        ``drafted``: by request, how many of the generated tokens earlier sources drafted. This call adds the source's own draft.
        """
        self.source.observe(generated)
        found = [(each, *self._drafts.pop(each)) for each in generated if each in self._drafts]
        lengths = _native.accepted_lengths([(drafts, place, generated[each]) for each, drafts, place, _ in found])
        for (each, _, _, expected), length in zip(found, lengths, strict=True):
            before, alone = drafted[each], min(len(generated[each]) - 1, length)
            self._gate.added.learn(expected, max(0, alone - before), alone)
            drafted[each] = max(before, alone)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)
        self.source.release(request_id)

    def close(self) -> None:
        self.source.close()

    def stats(self) -> dict[str, float]:
        """The source's counters, and the numbers of requests for which it "ran" and was "skipped"."""
        return self.source.stats() | {"ran": self._gate.ran, "skipped": self._gate.skipped}
