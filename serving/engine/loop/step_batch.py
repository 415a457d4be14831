"""Builds the batch of a step: prompt rows, and drafts cut to the size that the planner chose."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.loop.batch_entry import BatchEntry
from suffolk.serving.engine.loop.draft_candidate import DraftCandidate
from suffolk.serving.engine.loop.draft_counts import places
from suffolk.serving.engine.loop.drafter import Proposal, SampledChain, only_from, tree_of
from suffolk.serving.engine.loop.drafter_pool import Draft, DrafterPool
from suffolk.serving.engine.loop.prefill_budget import PrefillBudget
from suffolk.serving.engine.loop.prefill_pace import PrefillPace
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.loop.stats import Clock, LoopStats
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.tree_layout import chain, cut, lay_out
from suffolk.serving.engine.policy.planner import Planner


class StepBatch:
    """Builds the batch of each step. Not thread-safe."""

    def __init__(self, cache: KVCache, pool: DrafterPool, planner: Planner | None, stats: LoopStats) -> None:
        """``planner``: None if there are no drafters."""
        self._cache, self._pool, self._planner, self._stats = cache, pool, planner, stats
        self._pace = PrefillPace()

    def take(self, requests: Sequence[Request], clock: Clock) -> list[BatchEntry]:
        """The entries of the next pass; calls the drafters. ``clock`` gets the time of drafting.

        A pass reads as many prompt tokens as ``PrefillPace`` says. Requests whose prompts do not fit have no entry.
        """
        entries: list[BatchEntry] = []
        decoding = [request for request in requests if self._decodes(request)]
        budget = PrefillBudget(self._pace.tokens(len(decoding)))
        for request in requests:
            cached = int(self._cache.lengths[request.slot])
            pending = request.length - cached
            if not self._decodes(request) and (size := budget.take(pending)):
                rows = request.tokens[cached : cached + size].astype(np.int64)
                wanted = size if request.reads_scored else int(size == pending)
                entries.append(BatchEntry(request, chain(rows), wanted, DraftTree.empty(), None))
                self._stats.prompt_tokens += size
        reading_rows = sum(len(entry.layout) for entry in entries)
        return [*self._drafted(decoding, reading_rows, clock), *entries]

    def learn_pass(self, entries: Sequence[BatchEntry], seconds: float) -> None:
        """Learn from the time of the pass with ``entries``."""
        decoding = sum(bool(each.request.stats.steps) for each in entries)
        read = sum(len(each.layout) for each in entries if not each.request.stats.steps)
        self._pace.learn(read, decoding, seconds)

    def context(self, requests: Sequence[Request]) -> float:
        """The mean number of cached tokens of ``requests``; 0 for no requests."""
        return float(np.mean(self._cache.lengths[[request.slot for request in requests]])) if requests else 0.0

    def _decodes(self, request: Request) -> bool:
        """Whether all tokens of ``request`` but the last generated one are cached."""
        pending = request.length - int(self._cache.lengths[request.slot])
        return pending == 1 and request.length > request.stats.prompt_tokens

    def _drafted(self, decoding: list[Request], reading_rows: int, clock: Clock) -> list[BatchEntry]:
        """Entries of the ``decoding`` requests, with drafts sized for a pass that also has ``reading_rows`` prompt rows.

        The time to size the drafts counts as a cost of drafting.
        """
        drafting, drafts = self._draft(decoding, clock)
        begin = time.perf_counter()
        proposals, candidates = self._candidates(drafting, drafts)
        if self._planner is not None:
            rows = len(decoding) + reading_rows + sum(each.verified for each in candidates.values())
            self._planner.size_trees(list(candidates.values()), len(decoding), rows, self.context(decoding))
        entries = [self._entry(each, proposals.get(each.number), candidates.get(each.number)) for each in decoding]
        drafted = [entry for entry in entries if entry.candidate is not None]
        self._pool.prefetch([entry.request for entry in drafted], [tree_of(entry.proposal) for entry in drafted])
        seconds = time.perf_counter() - begin
        for candidate in candidates.values():
            candidate.seconds += seconds / len(candidates)
        return entries

    def _draft(self, decoding: list[Request], clock: Clock) -> tuple[list[Request], list[Draft]]:
        """The requests that draft in this step, and their drafts."""
        planner = self._planner
        if planner is None:
            return [], []
        drafting = [each for each in decoding if each.drafter and each.room > 0 and planner.may_draft(each.number)]
        clock.lap("draft")
        context = self.context(decoding)
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
            nodes = places(tree_of(draft.proposal))
            for stats in (request.stats, self._stats):
                stats.draft_calls += 1
                stats.drafted.proposed.update(nodes)
        return proposals, candidates

    def _entry(self, request: Request, draft: Proposal | None, candidate: DraftCandidate | None) -> BatchEntry:
        """The last token of ``request``, followed by its draft, cut to the nodes that the planner chose."""
        proposal: Proposal = DraftTree.empty()
        if draft is not None and candidate is not None:
            proposal = draft.head(candidate.verified) if isinstance(draft, DraftTree) else draft
            nodes = places(tree_of(proposal))
            for stats in (request.stats, self._stats):
                stats.drafted.verified.update(nodes)
                stats.drafted_steps += bool(nodes)
        layout = lay_out(int(request.tokens[request.length - 1]), tree_of(proposal))
        return BatchEntry(request, layout, len(layout), proposal, candidate, draft)


def candidate_of(request_id: int, draft: Draft, proposal: Proposal, model_sources: int) -> DraftCandidate:
    """The planner's view of a draft.

    A sampled chain gets no scores and is verified whole, because a choice that depends on its tokens would change the output
    distribution.
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
