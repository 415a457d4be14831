"""Builds the batch of a step: prompt rows, and drafts cut to the size that the planner chose."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.loop.drafter import Proposal, SampledChain, only_from, tree_of
from suffolk.serving.decoding.engine.loop.drafter_pool import Draft, DrafterPool
from suffolk.serving.decoding.engine.loop.prefill_pace import PrefillPace
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.slots import Slots
from suffolk.serving.decoding.engine.loop.stats import Clock, LoopStats
from suffolk.serving.decoding.engine.loop.step import TRACED_CONTEXT, Step, StepTrace
from suffolk.serving.decoding.engine.loop.verify_step import Outcome
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, cut, lay_out
from suffolk.serving.decoding.engine.policy.planner import Planner

NO_TREE = DraftTree.empty()
_FIRST = np.zeros(1, np.int64)


@dataclass(slots=True)
class BatchEntry:
    """One request's rows in a pass. They are a chunk of its prompt, or its last token and its draft.

    Attributes:
        layout: the rows.
        wanted: how many of the last rows need logits; 0 while the request reads its prompt, unless it has ``prompt_logprobs``.
        proposal: the draft whose nodes are among the rows, possibly empty.
        candidate: the planner's view of the draft; None if the request's drafter was not called.
        whole_draft: the draft before the planner cut it, for traces.
    """

    request: Request
    layout: TreeLayout
    wanted: int
    proposal: Proposal
    candidate: DraftCandidate | None
    whole_draft: Proposal | None = None

    @property
    def has_draft(self) -> bool:
        return len(tree_of(self.proposal)) > 0

    def without_draft(self) -> BatchEntry:
        """The same entry without its draft. The request's drafter still observes the tokens that follow."""
        if not self.has_draft:
            return self
        plain = DraftTree.empty()
        if self.candidate is not None:
            self.candidate.verified = 0
        return BatchEntry(
            self.request, lay_out(int(self.layout.tokens[0]), plain), 1, plain, self.candidate, self.whole_draft
        )

    def kept(self, outcome: Outcome | SuffolkError | None) -> npt.NDArray[np.int64]:
        """int64[k], the rows that the cache keeps: all rows of a prompt, or the rows of the last token and the accepted
        nodes."""
        if isinstance(outcome, Outcome) and len(outcome.path):
            return np.concatenate([_FIRST, outcome.path + 1])
        size = 1 if self.has_draft else len(self.layout)
        return _FIRST if size == 1 else np.arange(size)

    def trace(self, outcome: Outcome, step: Step, seconds: Mapping[str, float]) -> StepTrace:
        """The trace of ``step``, the result of ``outcome``. The request's tokens already include the step's."""
        request, path = self.request, outcome.path.tolist()
        begin = request.length - len(step.tokens)
        return StepTrace(
            context=tuple(request.tokens[max(0, begin - TRACED_CONTEXT) : begin].tolist()),
            tree=DraftTree.empty() if self.whole_draft is None else tree_of(self.whole_draft),
            verified=len(tree_of(self.proposal)),
            accepted=tuple(path[: len(step.tokens)]),
            sampled=outcome.token if len(step.tokens) > len(path) else None,
            pieces=step.pieces,
            seconds=dict(seconds),
        )


class StepBatch:
    """Builds the batch of each step. Not thread-safe."""

    def __init__(
        self, cache: KVCache, slots: Slots, pool: DrafterPool, planner: Planner | None, stats: LoopStats
    ) -> None:
        """``planner``: None if there are no drafters."""
        self._cache, self._slots, self._pool, self._planner, self._stats = cache, slots, pool, planner, stats
        self._pace = PrefillPace()

    def take(self, requests: Sequence[Request], clock: Clock) -> list[BatchEntry]:
        """The entries of the next pass; calls the drafters. ``clock`` gets the time of drafting.

        A pass reads as many prompt tokens as ``PrefillPace`` says. Requests whose prompts do not fit, or that wait for another
        request's rows, have no entry.
        """
        entries: list[BatchEntry] = []
        cached = self._cache.lengths[[request.slot for request in requests]].tolist()
        decoding = [each for each, kept in zip(requests, cached, strict=True) if _decodes(each, kept)]
        left = self._pace.tokens(len(decoding))
        for request, kept in zip(requests, cached, strict=True):
            if not _decodes(request, kept) and not self._slots.awaits_prefix(request):
                begin = int(self._cache.lengths[request.slot])
                pending = request.length - begin
                if size := min(pending, left):
                    left -= size
                    rows = request.tokens[begin : begin + size].astype(np.int64)
                    wanted = size if request.reads_scored else int(size == pending)
                    entries.append(BatchEntry(request, chain(rows), wanted, NO_TREE, None))
                    self._stats.prompt_tokens += size
        reading_rows = sum(len(entry.layout) for entry in entries)
        return [*self._drafted(decoding, reading_rows, clock), *entries]

    def learn_tokens(self, results: Sequence[tuple[BatchEntry, Step | SuffolkError]]) -> None:
        """Let the drafters learn from the new tokens. The time is a cost of drafting."""
        begin = time.perf_counter()
        observed = [
            (entry.candidate, entry.request, len(result.tokens))
            for entry, result in results
            if entry.candidate is not None and isinstance(result, Step)
        ]
        if not observed:
            return
        self._pool.observe(
            [request for _, request, _ in observed],
            [request.tokens[request.length - count : request.length] for _, request, count in observed],
        )
        seconds = time.perf_counter() - begin
        for candidate, _, _ in observed:
            candidate.seconds += seconds / len(observed)

    def learn_pass(self, entries: Sequence[BatchEntry], seconds: float) -> None:
        """Learn from the time of the pass with ``entries``."""
        decoding = sum(bool(each.request.stats.steps) for each in entries)
        read = sum(len(each.layout) for each in entries if not each.request.stats.steps)
        self._pace.learn(read, decoding, seconds)

    def context(self, requests: Sequence[Request]) -> float:
        """The mean number of cached tokens of ``requests``; 0 for no requests."""
        length = self._cache.lengths.item
        return sum(length(request.slot) for request in requests) / len(requests) if requests else 0.0

    def _drafted(self, decoding: list[Request], reading_rows: int, clock: Clock) -> list[BatchEntry]:
        """Entries of the ``decoding`` requests, with drafts sized for a pass that also has ``reading_rows`` prompt rows.

        The time to size the drafts counts as a cost of drafting.
        """
        context = self.context(decoding)
        drafting, drafts = self._draft(decoding, context, clock)
        begin = time.perf_counter()
        proposals, candidates = self._candidates(drafting, drafts)
        if self._planner is not None:
            rows = len(decoding) + reading_rows + sum(each.verified for each in candidates.values())
            self._planner.size_trees(list(candidates.values()), len(decoding), rows, context)
        entries = [self._entry(each, proposals.get(each.number), candidates.get(each.number)) for each in decoding]
        drafted = [entry for entry in entries if entry.candidate is not None]
        self._pool.prefetch([entry.request for entry in drafted], [tree_of(entry.proposal) for entry in drafted])
        seconds = time.perf_counter() - begin
        for candidate in candidates.values():
            candidate.seconds += seconds / len(candidates)
        return entries

    def _draft(self, decoding: list[Request], context: float, clock: Clock) -> tuple[list[Request], list[Draft]]:
        """The requests that draft in this step, and their drafts. ``context``: the mean number of cached tokens."""
        planner = self._planner
        if planner is None:
            return [], []
        drafting = [each for each in decoding if each.drafter and each.room > 0 and planner.may_draft(each.number)]
        clock.lap("draft")
        budgets = [planner.draft_budget(each.number, len(decoding), context) for each in drafting]
        drafts = self._pool.draft(drafting, budgets)
        clock.lap("wait")
        return drafting, drafts

    def _candidates(
        self, drafting: Sequence[Request], drafts: Sequence[Draft]
    ) -> tuple[dict[int, Proposal], dict[int, DraftCandidate]]:
        """Request number -> its draft without nodes that cannot be accepted, and the draft's candidate."""
        proposals: dict[int, Proposal] = {}
        candidates: dict[int, DraftCandidate] = {}
        for request, draft in zip(drafting, drafts, strict=True):
            proposal = proposals[request.number] = self._pool.permitted(
                request, _limit_depth(draft.proposal, request.room)
            )
            candidates[request.number] = candidate_of(
                request.number, draft, proposal, self._pool.model_sources[request.drafter]
            )
            for stats in (request.stats, self._stats):
                stats.draft_calls += 1
                stats.drafted.add_tree("proposed", tree_of(draft.proposal))
        return proposals, candidates

    def _entry(self, request: Request, draft: Proposal | None, candidate: DraftCandidate | None) -> BatchEntry:
        """The last token of ``request``, followed by its draft, cut to the nodes that the planner chose."""
        proposal: Proposal = NO_TREE
        if draft is not None and candidate is not None:
            proposal = draft.head(candidate.verified) if isinstance(draft, DraftTree) else draft
        tree = tree_of(proposal)
        if not len(tree):
            last = request.tokens[request.length - 1 : request.length].astype(np.int64)
            return BatchEntry(request, chain(last), 1, proposal, candidate, draft)
        for stats in (request.stats, self._stats):
            stats.drafted.add_tree("verified", tree)
            stats.drafted_steps += 1
        layout = lay_out(int(request.tokens[request.length - 1]), tree)
        return BatchEntry(request, layout, len(layout), proposal, candidate, draft)


def _decodes(request: Request, cached: int) -> bool:
    """Whether all tokens of ``request``, except the last generated token, are among its ``cached`` tokens."""
    return request.length - cached == 1 and request.length > request.stats.prompt_tokens


def candidate_of(request_id: int, draft: Draft, proposal: Proposal, model_sources: int) -> DraftCandidate:
    """The planner's view of a draft.

    A sampled chain gets no scores, and the whole chain is verified. If the verified tokens were chosen by their scores, which
    depend on the sampled tokens, the output distribution would change.
    """
    tree = tree_of(proposal)
    is_tree = isinstance(proposal, DraftTree)
    return DraftCandidate(
        request_id,
        tree.scores if is_tree else np.empty(0, np.float32),
        only_from(tree, model_sources),
        draft.seconds,
        draft.model_seconds,
        draft.prefill_seconds,
        verified=0 if is_tree else len(tree),
    )


def _limit_depth(proposal: Proposal, depth: int) -> Proposal:
    if isinstance(proposal, DraftTree):
        return cut(proposal, depth)
    return SampledChain(cut(proposal.tree, depth), proposal.distributions[:depth])
