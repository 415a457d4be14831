"""The hierarchy drafter: a stack of levels. Each level verifies the draft of the level below it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import LevelQuery, LevelReply
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.recursion import (
    LevelQueries,
    Recursion,
    RoundPolicy,
    SegmentCalibrator,
    StackedLevel,
    StackState,
)
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.neural.draft_state import LEFT_OVER, StatefulDrafter
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures, failure_stats, failures_by_reason
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, Proposal, datastore_names
from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK
from suffolk.serving.decoding.engine.policy.prefill_policy import PrefillPolicy

Waiting = tuple[StackState, LevelQueries, LevelQuery]
"""A request, its recursion (a generator of ``Recursion.draft``), and the query whose reply the recursion waits for."""


class LevelBatcher:
    """Makes the passes of all requests. The lowest level runs first, so that more queries share a pass. Not thread-safe."""

    def __init__(self, levels: Sequence[StackedLevel], recursion: Recursion, failures: DraftFailures) -> None:
        """``failures`` counts drafts that end at NaN logits."""
        self._levels, self._recursion, self._failures = levels, recursion, failures

    @torch.inference_mode()
    def draft(self, states: Sequence[StackState], most_seconds: float) -> None:
        """Set the ``segment`` of each of ``states``.

        A pass that would bring the sum of all passes above ``most_seconds`` is not made. The tokens drafted so far are kept.
        """
        waiting: list[Waiting] = []
        for state in states:
            self._advance(waiting, state, self._recursion.draft(state), None)
        while waiting:
            at = min(query.level for _, _, query in waiting)
            group = [each for each in waiting if each[2].level == at]
            waiting = [each for each in waiting if each[2].level != at]
            most_seconds -= self._run_level(at, group, waiting, most_seconds)

    def _run_level(self, at: int, group: list[Waiting], waiting: list[Waiting], most: float) -> float:
        """Answer the queries of ``group`` with level ``at``, and add their next queries to ``waiting``.

        Returns the expected seconds of the pass; 0 if none was made.
        """
        level, begin = self._levels[at], time.perf_counter()
        slots, queries = [state.slot for state, _, _ in group], [query for _, _, query in group]
        requests = [state.request for state, _, _ in group]
        replies: Sequence[LevelReply] = [None] * len(group)
        seconds, rows = 0.0, 0
        if isinstance(level, RetrievalLevel):
            replies = level.answer(requests, queries)
        elif (expected := level.seconds_of(slots, requests, queries)) <= most:
            seconds, rows = expected, level.rows
            replies = level.answer(slots, requests, queries)
            rows = level.rows - rows
        for (state, recursion, _), reply in zip(group, replies, strict=True):
            self._advance(waiting, state, recursion, reply)
        if isinstance(level, ModelLevel) and rows:
            level.learn_cost(slots, rows, time.perf_counter() - begin)
        return seconds

    def _advance(self, waiting: list[Waiting], state: StackState, recursion: LevelQueries, reply: LevelReply) -> None:
        """Resume a recursion until its next query or its end. ``reply``: the answer to its last query; None at its start."""
        try:
            waiting.append((state, recursion, recursion.send(reply)))
        except StopIteration as end:
            state.segment = end.value
            if state.is_cut:
                self._failures.add(InvalidArgument.__name__, "a level's logits are NaN")


SOURCE = source_bits("hierarchy")


class HierarchyDrafter(StatefulDrafter[StackState]):
    """Drafts chains with a stack of levels; the target verifies the top level's chain. Not thread-safe.

    With verification ``match``, levels sample with the target's noise. With ``rejection`` at a temperature above 0, each level
    verifies the draft below by speculative sampling. The target gets the distributions of the chain's tokens (``SampledChain``).

    Source: "Fast Inference via Hierarchical Speculative Decoding", algorithm 1.

    Attributes:
        datastores: names of the datastores that its bottom level searches (``DatastoreReader``).
        cache_bytes: bytes of all levels' caches.
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
        """Take ownership of the levels.

        Args:
            levels: one or more, from the bottom up. Only the bottom level may be retrieval.
            vocab_size: the target's.
            eos_ids: the target's tokens that end a text.
            slots: the slots of the levels' caches. Further requests get no drafts.
            thrifty: whether to skip drafts and rounds that are expected to cost more than they save.
        """
        super().__init__("hierarchy", slots)
        self._levels = list(levels)
        self._models = [level for level in levels if isinstance(level, ModelLevel)]
        self.cache_bytes = sum(level.cache_bytes for level in self._models)
        self._sources = [source for level in levels if isinstance(level, RetrievalLevel) for source in level.sources]
        self.datastores = tuple(name for source in self._sources for name in datastore_names(source))
        self._calibrator = SegmentCalibrator(retrieval=isinstance(levels[-1], RetrievalLevel))
        self._thrifty = thrifty
        self._rounds = RoundPolicy([level.costs for level in self._models])
        policy = self._rounds if thrifty else None
        self._recursion = Recursion(self._levels, vocab_size, eos_ids, self._calibrator, policy)
        self._batcher = LevelBatcher(self._levels, self._recursion, self.failures)
        self._prefill = PrefillPolicy()

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self._calls += 1
        states = [self._open(request) for request in requests]
        ready = [
            state for state in states if state is not None and self._fits(state) and self._reads(state, len(requests))
        ]
        left = [PREFILL_CHUNK] * len(self._models)
        self._draft([state for state in ready if self._is_up_to_date(state, left)])
        return [
            DraftTree.empty()
            if state is None
            else self._calibrator.proposal(state.segment, state.request.settings, SOURCE)
            for state in states
        ]

    def observe(self, generated: Generated) -> None:
        known = {request_id: tokens for request_id, tokens in generated.items() if request_id in self._states}
        for request_id, tokens in known.items():
            state = self._states[request_id]
            if len(state.segment):
                accepted = self._calibrator.learn(state.segment, state.request.settings, tokens)
                self._rounds.learn(accepted, min(len(state.segment), len(tokens)))
        for source in self._sources:
            source.observe(known)

    def _released(self, request_id: int, state: StackState) -> None:
        self._prefill.release(request_id, len(state.request.tokens) - state.request.prompt_tokens)
        for source in self._sources:
            source.release(request_id)
        for level in self._models:
            level.clear(state.slot)
        self._free.append(state.slot)

    def stats(self) -> dict[str, float]:
        """The usual counters, and the passes and rows of each model level."""
        failures = sum((failures_by_reason(source.stats()) for source in self._sources), self.failures.by_reason)
        counters: dict[str, float] = {
            "calls": self._calls,
            "passes": self._passes_made(),
            "prefill_seconds": self._prefill_seconds,
            "unread": self._prefill.refused,
        }
        for level in self._models:
            counters |= {f"{level.name}: passes": level.passes, f"{level.name}: rows": level.rows}
        return counters | failure_stats(failures)

    def close(self) -> None:
        super().close()
        for source in self._sources:
            source.close()

    def _open(self, request: DraftRequest) -> StackState | None:
        """The request's state at the beginning of a step; None if no slot is free."""
        state = self._states.get(request.request_id)
        if state is None:
            if not self._has_slot():
                return None
            state = self._states[request.request_id] = StackState(self._free.pop(), len(self._levels))
        state.begin(request)
        return state

    def _fits(self, state: StackState) -> bool:
        tokens = state.request.tokens
        limit = min((level.limit for level in self._models), default=math.inf)
        if len(tokens) >= limit:
            self.failures.add(
                "ResourceExhausted", f"a text has {len(tokens)} tokens, and a level reads {limit - 1} with a draft"
            )
            return False
        if self._models and (highest := int(tokens.max())) >= self._recursion.common_vocab:
            self.failures.add("Unsupported", f"a text has token {highest}, which a level does not know")
            return False
        state.room = int(min(state.room, limit - len(tokens)))
        return state.room > 0

    def _reads(self, state: StackState, requests: int) -> bool:
        """Whether the levels should read the request's text (``PrefillPolicy``)."""
        if not (self._thrifty and self._models):
            return True
        request, size = state.request, len(state.request.tokens)
        share = self._rounds.saving(self._levels[-1].tokens, request.budget, requests, size)
        seconds = self._rounds.prefill_seconds(size)
        return self._prefill.reads(request.request_id, share, seconds, request.room + 1, request.budget)

    def _is_up_to_date(self, state: StackState, left: list[int]) -> bool:
        """Read pending text. Returns whether every level has read it, except for its last tokens.

        ``left``: how many tokens each level may still read in this step, which the call updates.
        """
        tokens, is_up_to_date = state.request.tokens, True
        for at, level in enumerate(self._models):
            pending = level.pending(state.slot, tokens)
            if pending <= LEFT_OVER:
                continue
            if size := min(pending - 1, left[at]):
                left[at] -= size
                begin = time.perf_counter()
                level.read(state.slot, tokens, size)
                self._prefill_seconds += time.perf_counter() - begin
            is_up_to_date &= size == pending - 1
        return is_up_to_date

    def _draft(self, states: Sequence[StackState]) -> None:
        """Draft for ``states``, and learn the cost."""
        if not states:
            return
        requests = [state.request for state in states]
        begin = time.perf_counter()
        most = sum(request.budget.model_seconds for request in requests) if self._thrifty else float("inf")
        passes = self._passes_made()
        self._batcher.draft(states, most)
        seconds = time.perf_counter() - begin
        rounds = sum(state.rounds for state in states) if self._models else len(states)
        if rounds or self._passes_made() > passes:  # lower levels may have made passes without a round of the top level
            self._rounds.learn_rounds(max(1, rounds), sum(len(state.segment) for state in states), seconds)

    def _passes_made(self) -> int:
        return sum(level.passes for level in self._models)
