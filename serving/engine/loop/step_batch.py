"""What running requests bring to a step: rows of prompts, or drafts that the planner has sized."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.loop.batch_entry import BatchEntry
from suffolk.serving.engine.loop.clock import Clock
from suffolk.serving.engine.loop.draft_counts import places
from suffolk.serving.engine.loop.drafter import Proposal, SampledChain, tree_of
from suffolk.serving.engine.loop.drafter_pool import Answer, DrafterPool
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.loop.stats import LoopStats
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.tree_layout import chain, cut, lay_out
from suffolk.serving.engine.policy.planner import DraftCandidate, Planner
from suffolk.serving.engine.policy.prefill_budget import PrefillBudget


class StepBatch:
    """Makes the turns of steps. Not thread-safe."""

    def __init__(self, cache: KVCache, proposals: DrafterPool, planner: Planner | None, stats: LoopStats) -> None:
        """``planner``: None if nobody drafts."""
        self._cache, self._proposals, self._planner, self._stats = cache, proposals, planner, stats

    def take(self, requests: Sequence[Request], clock: Clock) -> list[BatchEntry]:
        """What each of ``requests`` brings to this pass; drafters are asked, and ``clock`` is told what that takes. A pass reads a
        chunk of prompts: those for whose prompts it has no room bring nothing."""
        turns: list[BatchEntry] = []
        decoding: list[Request] = []
        budget = PrefillBudget()
        for request in requests:
            cached = int(self._cache.lengths[request.slot])
            pending = request.length - cached
            if pending == 1 and request.length > request.stats.prompt_tokens:
                decoding.append(request)
            elif size := budget.take(pending):
                rows = request.tokens[cached : cached + size].astype(np.int64)
                turns.append(BatchEntry(request, chain(rows), int(size == pending), DraftTree.empty(), None))
                self._stats.prompt_tokens += size
        reading_rows = sum(len(turn.layout) for turn in turns)
        return [*self._proposed(decoding, reading_rows, clock), *turns]

    def context(self, requests: Sequence[Request]) -> float:
        """Cached tokens of ``requests`` in the mean."""
        return float(np.mean(self._cache.lengths[[request.slot for request in requests]])) if requests else 0.0

    def _proposed(self, decoding: list[Request], reading_rows: int, clock: Clock) -> list[BatchEntry]:
        """Drafts for those that decode, sized for a pass with so many rows of prompts. What is done with drafts is part of what
        they cost."""
        asking, answers = self._ask(decoding, clock)
        begin = time.perf_counter()
        drafts, offers = self._offers(asking, answers)
        if self._planner is not None:
            rows = len(decoding) + reading_rows + sum(offer.verified for offer in offers.values())
            self._planner.choose(list(offers.values()), len(decoding), rows, self.context(decoding))
        turns = [self._turn(request, drafts.get(request.number), offers.get(request.number)) for request in decoding]
        proposed = [turn for turn in turns if turn.offer is not None]
        self._proposals.prefetch([turn.request for turn in proposed], [tree_of(turn.proposal) for turn in proposed])
        seconds = time.perf_counter() - begin
        for offer in offers.values():
            offer.seconds += seconds / len(offers)
        return turns

    def _ask(self, decoding: list[Request], clock: Clock) -> tuple[list[Request], list[Answer]]:
        """Those requests that may have a draft, and what their drafters say."""
        asking = [
            request for request in decoding if request.ledger is not None and request.room > 0
            and request.ledger.should_propose()
        ]  # fmt: skip
        clock.lap("draft")
        stakes = [self._planner.draft_stake(each.ledger) for each in asking if each.ledger and self._planner]
        row = self._planner.row_seconds(len(decoding), self.context(decoding)) if self._planner and asking else 0.0
        answers = self._proposals.ask(asking, self._token_seconds(decoding), stakes, row)
        clock.lap("wait")
        return asking, answers

    def _offers(
        self, asking: Sequence[Request], answers: Sequence[Answer]
    ) -> tuple[dict[int, Proposal], dict[int, DraftCandidate]]:
        """The drafts, no deeper than is of use, and what the planner is to know of them, by the requests' numbers."""
        drafts: dict[int, Proposal] = {}
        offers: dict[int, DraftCandidate] = {}
        for request, answer in zip(asking, answers, strict=True):
            drafts[request.number] = _cut(answer.proposal, request.room)
            offers[request.number] = self._offer(request, drafts[request.number], answer)
            nodes = places(tree_of(answer.proposal))
            for stats in (request.stats, self._stats):
                stats.proposals += 1
                stats.drafted.proposed.update(nodes)
        return drafts, offers

    def _turn(self, request: Request, draft: Proposal | None, offer: DraftCandidate | None) -> BatchEntry:
        """The last token of ``request``, and behind it as much of its draft as was chosen."""
        proposal: Proposal = DraftTree.empty()
        if draft is not None and offer is not None:
            proposal = draft.head(offer.verified) if isinstance(draft, DraftTree) else draft
            nodes = places(tree_of(proposal))
            for stats in (request.stats, self._stats):
                stats.drafted.verified.update(nodes)
        layout = lay_out(int(request.tokens[request.length - 1]), tree_of(proposal))
        return BatchEntry(request, layout, len(layout), proposal, offer)

    def _offer(self, request: Request, draft: Proposal, answer: Answer) -> DraftCandidate:
        """What the planner may choose from: of a sampled chain nothing, because choosing by its tokens would change the law."""
        assert request.ledger is not None
        offer = DraftCandidate(
            request.drafter,
            request.ledger,
            np.empty(0, np.float32),
            answer.seconds,
            network_seconds=answer.network_seconds,
            reading=answer.reading,
            of_networks=self._proposals.owed(request, tree_of(draft)),
        )
        if isinstance(draft, DraftTree):
            offer.scores = draft.scores
        else:
            offer.verified = len(draft.tree)
        return offer

    def _token_seconds(self, requests: Sequence[Request]) -> float:
        """What a token costs in a plain pass for ``requests``."""
        if self._planner is None or not requests:
            return 0.0
        return self._planner.costs.time(len(requests), len(requests), self.context(requests)) / len(requests)


def _cut(proposal: Proposal, depth: int) -> Proposal:
    if isinstance(proposal, DraftTree):
        return cut(proposal, depth)
    return SampledChain(cut(proposal.tree, depth), proposal.law[:depth])
