"""Drafts by a stack of levels, each of which verifies what the one below drafts: hierarchical speculative decoding."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree, Source
from suffolk.serving.drafters.hierarchy.draft_state import Belief, Text
from suffolk.serving.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.drafters.hierarchy.passes import Passes
from suffolk.serving.drafters.hierarchy.recursion import Recursion, StackedLevel
from suffolk.serving.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.drafters.hierarchy.thrift import Thrift
from suffolk.serving.drafters.neural.draft_state import LEFT_OVER
from suffolk.serving.drafters.neural.prospect import Prospect
from suffolk.serving.engine.loop.draft_failures import DraftFailures, missed_by_reason, missed_stats
from suffolk.serving.engine.loop.drafter import DraftRequest, Proposal, mean_worth
from suffolk.serving.engine.policy.prefill_budget import PrefillBudget


class HierarchyDrafter:
    """Chains from a stack of levels; the target, above the last, verifies them in the step loop.

    Under ``match`` levels draw with the target's noise. Under verification ``rejection`` at a temperature above 0 each level does
    speculative sampling on what the one below drew, and the target is told the laws (``SampledChain``). Not thread-safe.

    Source: "Fast Inference via Hierarchical Speculative Decoding", algorithm 1.
    """

    name = "hierarchy"

    def __init__(
        self,
        levels: Sequence[StackedLevel],
        vocab_size: int,
        eos_ids: frozenset[int] = frozenset(),
        slots: int = 8,
        thrifty: bool = True,
    ) -> None:
        """Takes over the levels, one or more, from the bottom up; retrieval at the bottom alone.

        Args:
            vocab_size: the target's; ``eos_ids``: its tokens that end a text.
            slots: requests that the levels' caches hold; further ones get no drafts.
            thrifty: leave out drafts and rounds that promise less than they take, and passes beyond what a draft may take. False
                to make them all, as a plan has them.
        """
        self._levels = list(levels)
        self._models = [level for level in levels if isinstance(level, ModelLevel)]
        self._sources = [source for level in levels if isinstance(level, RetrievalLevel) for source in level.sources]
        self._recursion = Recursion(self._levels, vocab_size, eos_ids)
        self.missed = DraftFailures("hierarchy")
        self._passes = Passes(self._levels, self._recursion, self.missed)
        self._belief = Belief(searched=isinstance(levels[-1], RetrievalLevel))
        self._thrifty = thrifty
        self._thrift = Thrift([level.costs for level in self._models])
        self._prospect = Prospect(self._thrift, levels[-1].tokens)
        self._free = list(range(slots))
        self._slots = slots
        self._texts: dict[int, Text] = {}
        self._calls = 0
        self._reading_seconds = 0.0

    @property
    def cache_bytes(self) -> int:
        """Memory of all levels' caches."""
        return sum(level.cache_bytes for level in self._models)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self._calls += 1
        texts = [self._open(request) for request in requests]
        ready = [text for text in texts if text is not None and self._fits(text) and self._reads(text, len(requests))]
        budgets = [PrefillBudget() for _ in self._models]
        self._draft([text for text in ready if self._is_up_to_date(text, budgets)])
        return [DraftTree.empty() if text is None else self._belief.proposal(text, Source.HIERARCHY) for text in texts]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        text = self._texts.get(request_id)
        if text is None:
            return
        if len(text.handed):
            self._thrift.learn(self._belief.learn(text, tokens), min(len(text.handed), len(tokens)))
        for source in self._sources:
            source.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        text = self._texts.pop(request_id, None)
        if text is None:
            return
        self._prospect.learn(request_id, len(text.request.tokens) - text.request.prompt_tokens)
        for source in self._sources:
            source.release(request_id)
        for level in self._models:
            level.clear(text.slot)
        self._free.append(text.slot)

    def stats(self) -> dict[str, float]:
        """The usual counters, and of each level that is a model its passes and the rows that they read."""
        missed = sum((missed_by_reason(source.stats()) for source in self._sources), self.missed.by_reason)
        counters: dict[str, float] = {
            "calls": self._calls,
            "passes": self._passes_made(),
            "reading_seconds": self._reading_seconds,
            "unread": self._prospect.refused,
        }
        for level in self._models:
            counters |= {f"{level.name}: passes": level.passes, f"{level.name}: rows": level.rows}
        return counters | missed_stats(missed)

    def close(self) -> None:
        for request_id in list(self._texts):
            self.release(request_id)
        for source in self._sources:
            source.close()

    def _open(self, request: DraftRequest) -> Text | None:
        """The request's text, its last draft forgotten; None if there is no slot for it."""
        text = self._texts.get(request.request_id)
        if text is None:
            if not self._free:
                self.missed.add("ResourceExhausted", f"all {self._slots} slots are taken")
                return None
            text = self._texts[request.request_id] = self._recursion.new_text(self._free.pop())
        text.begin(request, min(request.max_nodes, request.room), self._belief, self._thrift if self._thrifty else None)
        return text

    def _fits(self, text: Text) -> bool:
        tokens = text.request.tokens
        limit = min((level.limit for level in self._models), default=math.inf)
        if len(tokens) >= limit:
            self.missed.add(
                "ResourceExhausted", f"a text has {len(tokens)} tokens, and a level reads {limit - 1} with a draft"
            )
            return False
        if self._models and (highest := int(tokens.max())) >= self._recursion.common_vocab:
            self.missed.add("Unsupported", f"a text has token {highest}, which a level does not know")
            return False
        text.room = int(min(text.room, limit - len(tokens)))
        return text.room > 0

    def _reads(self, text: Text, requests: int) -> bool:
        """Whether its levels read the text at all."""
        return not (self._thrifty and self._models) or self._prospect.repays(
            text.request, len(text.request.tokens), requests
        )

    def _is_up_to_date(self, text: Text, budgets: Sequence[PrefillBudget]) -> bool:
        """Whether all levels have read the text but for some last tokens; each reads a part of a longer rest now, as far as its
        budget reaches."""
        tokens, is_up_to_date = text.request.tokens, True
        for level, budget in zip(self._models, budgets, strict=True):
            pending = level.pending(text.slot, tokens)
            if pending <= LEFT_OVER:
                continue
            if size := budget.take(pending - 1):
                begin = time.perf_counter()
                level.read(text.slot, tokens, size)
                self._reading_seconds += time.perf_counter() - begin
            is_up_to_date &= size == pending - 1
        return is_up_to_date

    def _draft(self, texts: Sequence[Text]) -> None:
        """Set what each of ``texts`` hands up, where a draft pays."""
        if not texts:
            return
        requests = [text.request for text in texts]
        worth = mean_worth(requests)
        if self._thrifty and not self._thrift.begins(worth):
            return
        begin = time.perf_counter()
        most = sum(request.most_seconds for request in requests) if self._thrifty else float("inf")
        passes = self._passes_made()
        self._passes.draft(texts, most)
        seconds = time.perf_counter() - begin
        rounds = sum(text.rounds for text in texts) if self._models else len(texts)
        if (
            rounds or self._passes_made() > passes
        ):  # lower levels' passes cost what they cost, though the top one made none
            self._thrift.learn_rounds(max(1, rounds), sum(len(text.handed) for text in texts), seconds)

    def _passes_made(self) -> int:
        return sum(level.passes for level in self._models)
