"""The step loop. A step drafts, verifies all requests in one target pass, keeps the accepted rows, and lets the drafters learn."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import Field, Internal, InvalidArgument, ResourceExhausted, SuffolkError
from suffolk.datastore.retriever import MAX_NODES
from suffolk.serving.decoding.engine.costs.cost_measurement import measure
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter, tree_of
from suffolk.serving.decoding.engine.loop.drafter_pool import DrafterPool
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.slots import Slots
from suffolk.serving.decoding.engine.loop.stats import Clock, LoopStats
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_batch import BatchEntry, StepBatch
from suffolk.serving.decoding.engine.loop.verify_pass import Verified, drafts_of, verify_pass
from suffolk.serving.decoding.engine.loop.verify_step import Outcome
from suffolk.serving.decoding.engine.model.memory import memory_guard
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.passes import Passes, require_states
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.policy.planner import Planner
from suffolk.serving.decoding.engine.sampling.row_sampling import sample_rows
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line

log = logging.getLogger(__name__)


class StepLoop:
    """Decodes up to ``slots`` requests at once. Requests join and leave between steps. Not thread-safe.

    Attributes:
        target, cache, passes: the model, the cache of all requests, and the model's passes over it.
        stats: counts and seconds since the start.
        running: the requests that run.
    """

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter] | None = None,
        costs: CostModel | Planner | None = None,
        slots: int = 1,
        capacity: int = 4096,
        passes: str = "auto",
        prefix_reuse: bool = False,
    ) -> None:
        """Allocates the cache. Other arguments, and the errors, are those of ``Engine``.

        Args:
            drafters: the loop calls them from one thread and leaves them open.
            costs: may be a ``Planner``, which is used as it is.
        """
        check_range("slots", slots, 1, 1024)
        check_range("capacity", capacity, 2)
        self.target = target
        self.cache = target.new_cache(slots, capacity)
        self.stats = LoopStats()
        self._pool = DrafterPool(drafters or {}, target, self.cache)
        require_states(target, passes, self._pool.layers)
        if drafters and costs is None:
            costs = measure(target, slots, passes=passes)
        # a copy: the planner corrects it
        self._planner = Planner(costs.copy()) if isinstance(costs, CostModel) else costs
        self.passes = Passes(target, self.cache, passes, self._pool.layers, prepare_all=True, sample=sample_rows)
        self._slots = Slots(self.cache, prefix_reuse, takes_lowest=self.passes.kind == "captured")
        self._batch = StepBatch(self.cache, self._slots, self._pool, self._planner, self.stats)
        self._names = frozenset(drafters or {})
        self.running: list[Request] = []
        self._recording = 0.0  # seconds of the planner's last ``record``, a cost of drafting

    @property
    def free(self) -> int:
        """How many more requests may join."""
        return self._slots.free

    @property
    def slowdown(self) -> float:
        """The current time of the target's passes, divided by the measured time (``CostModel``); 1 without drafters."""
        return 1.0 if self._planner is None else self._planner.costs.slowdown

    def require_room(self, request: Request) -> None:
        """Check that ``request`` can run.

        Raises:
            InvalidArgument: its drafter is not loaded, or ``max_nodes`` is out of its range.
            ResourceExhausted: it needs more cache rows than a slot has.
        """
        if request.drafter and request.drafter not in self._names:
            known = ", ".join(sorted(self._names)) or "none"
            raise InvalidArgument(Field("drafter"), f" {request.drafter!r} is not loaded; loaded: {known}")
        check_range("max_nodes", request.max_nodes, 1, MAX_NODES)
        needed = rows_needed(request)
        if needed > self.cache.capacity:
            raise ResourceExhausted(
                f"the request needs {needed} cache rows (prompt, new tokens, largest tree); a slot has {self.cache.capacity}; "
                "shorten the prompt, ask for fewer tokens, or start the engine with a larger capacity"
            )

    def join(self, request: Request) -> None:
        """Add ``request`` to the next step. Raises the errors of ``require_room``, and ResourceExhausted if no slot is free."""
        self.require_room(request)
        if not self._slots.free:
            raise ResourceExhausted(f"all {self.cache.slots} slots are taken; wait until one is free")
        self._slots.take(request, self.running, reads_all=request.reads_scored or self._pool.reads_prompt(request))
        if request.drafter and self._planner is not None:
            self._planner.open(request.number, request.drafter, self._pool.model_sources[request.drafter] != 0)
        self.running.append(request)

    def leave(self, request: Request, finish: str = "cancelled") -> None:
        """Remove ``request`` and free its slot. Does nothing if it has left already."""
        if request not in self.running:
            return
        self.running.remove(request)
        self._slots.give_back(request, self.running)
        request.stats.finish = request.stats.finish or finish
        if request.drafter and self._planner is not None:
            self._pool.release(request)
            self._planner.close(request.number)
        self.stats.add_request(request.stats)

    def totals(self) -> dict[str, Any]:
        """``stats``, with the failed drafts of running requests, ready for JSON."""
        failures = sum((each.stats.draft_failures for each in self.running), self.stats.draft_failures)
        return self.stats.to_dict() | {"draft_failures": dict(failures)}

    def step(self) -> list[tuple[Request, Step | SuffolkError]]:
        """Run one pass for all running requests.

        Returns the new tokens or the error of each request. Requests that finish are removed, and their slots are free.

        Raises:
            ResourceExhausted: the device has no memory for the pass, even without drafts.
        """
        if not self.running:
            return []
        with memory_guard(f"model {self.target.name}, {len(self.running)} requests"):
            return self._step()

    def _step(self) -> list[tuple[Request, Step | SuffolkError]]:
        clock = Clock()
        entries = self._batch.take(self.running, clock)
        clock.lap("draft")
        try:
            read, found = self._read(entries, clock)
        except ResourceExhausted as error:  # the drafts might not fit: try the step without them
            entries = self._without_drafts(entries, error)
            read, found = self._read(entries, clock)
        outcomes, rows = found.outcomes, found.rows
        slots = [entry.request.slot for entry in entries]
        kept = [entry.kept(outcomes.get(entry.request.number)) for entry in entries]
        self.cache.keep(slots, kept, found.placed)
        clock.lap("compact")
        if read.features is not None:
            self._follow(entries, kept, read.features)
        results: list[tuple[BatchEntry, Step | SuffolkError]] = []
        for entry in entries:
            outcome = outcomes.get(entry.request.number)
            if outcome is not None:
                results.append((entry, self._result(entry, outcome, rows)))
        self._batch.learn_tokens(results)
        self._learn_logits(entries, outcomes, rows)
        self._batch.learn_pass(entries, clock.seconds["forward"])
        self._record(entries, clock)
        clock.lap("other")
        self._add_stats(entries, clock)
        for entry, result in results:
            if isinstance(result, SuffolkError):
                self.leave(entry.request, "error")
            elif result.finish:
                self.leave(entry.request)
        return [(entry.request, _traced(entry, outcomes, result, clock)) for entry, result in results]

    def _read(self, entries: Sequence[BatchEntry], clock: Clock) -> tuple[PassResult, Verified]:
        """Run the pass and verify its drafts. May be repeated until ``KVCache.keep`` is called. Raises ResourceExhausted."""
        slots = [entry.request.slot for entry in entries]
        layouts, wanted = [entry.layout for entry in entries], [entry.wanted for entry in entries]
        with memory_guard(f"model {self.target.name}, {len(entries)} requests"):
            self.passes.prepare(slots, layouts, wanted)
            drafts = drafts_of(entries, self._pool) if self.passes.has_steps else None
            clock.lap("other")
            if drafts is None:
                read, walks = self.passes.forward(slots, layouts, wanted), None
            else:
                read, walks = self.passes.step(slots, layouts, wanted, drafts)
            if walks is None:
                self.target.synchronize()
            clock.lap("forward")
            found = self._verify(entries, read.logits, walks)
            clock.lap("verify")
        return read, found

    @staticmethod
    def _without_drafts(entries: Sequence[BatchEntry], error: ResourceExhausted) -> list[BatchEntry]:
        """The entries of the same step without drafts. Counts the drafts as failed. Raises ``error`` if there are no drafts."""
        if not any(entry.has_draft for entry in entries):
            raise error
        log.warning("%s; continuing without the drafts of this step", error)
        for entry in entries:
            if entry.has_draft:
                entry.request.stats.draft_failures[type(error).__name__] += 1
        return [entry.without_draft() for entry in entries]

    _verify = staticmethod(verify_pass)

    def _result(
        self, entry: BatchEntry, outcome: Outcome | SuffolkError, rows: Mapping[int, torch.Tensor]
    ) -> Step | SuffolkError:
        """The request's new tokens, or its error. If the tokenizer cannot decode the tokens, only this request fails."""
        if isinstance(outcome, SuffolkError):
            return outcome
        try:
            step = self._commit(entry, outcome)
        except USER_CODE_ERRORS as error:
            log.exception("request %d: the sampled tokens cannot be decoded", entry.request.number)
            entry.request.stats.finish = ""
            return Internal(f"the sampled tokens cannot be decoded: {first_line(error)}")
        if not entry.request.keep_logits:
            return step
        logits = _accepted_rows(rows[entry.request.number], outcome, len(step.tokens))
        return replace(step, logits=logits.to(torch.promote_types(logits.dtype, torch.float32)))

    def _commit(self, entry: BatchEntry, outcome: Outcome) -> Step:
        request, tree = entry.request, tree_of(entry.proposal)
        before = request.length
        tokens = [*tree.tokens[outcome.path].tolist(), outcome.token]
        step = request.commit(tokens, [*tree.sources[outcome.path].tolist(), 0], outcome.log_probabilities)
        self.stats.add_tokens(step.sources)
        if before > request.stats.prompt_tokens:
            request.stats.steps += 1
            self.stats.steps += 1
        if entry.candidate is not None:
            entry.candidate.accept(outcome.path, len(step.tokens) - 1)
        return step

    def _learn_logits(
        self,
        entries: Sequence[BatchEntry],
        outcomes: Mapping[int, Outcome | SuffolkError],
        rows: Mapping[int, torch.Tensor],
    ) -> None:
        """Pass the logits of the new tokens to the drafters that read them.

        The time is a cost of drafting, so the logits of requests that may not draft are not passed.
        """
        begin = time.perf_counter()
        requests, logits = [], []
        for entry in entries:
            outcome = outcomes.get(entry.request.number)
            if isinstance(outcome, Outcome) and self._learns(entry.request):
                new = entry.candidate.accepted + 1 if entry.candidate is not None else 1
                requests.append(entry.request)
                logits.append(_accepted_rows(rows[entry.request.number], outcome, new))
        if not requests:
            return
        self._pool.learn_logits(requests, logits)
        seconds = (time.perf_counter() - begin) / len(requests)
        for entry in entries:
            if entry.candidate is not None and self._pool.learns(entry.request):
                entry.candidate.seconds += seconds

    def _learns(self, request: Request) -> bool:
        return self._pool.learns(request) and self._planner is not None and not self._planner.is_paused(request.number)

    def _follow(
        self, entries: Sequence[BatchEntry], kept: Sequence[npt.NDArray[np.int64]], features: torch.Tensor
    ) -> None:
        """Pass the hidden states of the kept rows to the requests' drafters."""
        begin = 0
        for entry, rows in zip(entries, kept, strict=True):
            if entry.request.drafter:
                self._pool.follow(entry.request, features, begin + rows)
            begin += len(entry.layout)

    def _record(self, entries: Sequence[BatchEntry], clock: Clock) -> None:
        """Let the planner learn from the step."""
        decoding = [entry.request for entry in entries if entry.request.stats.steps]
        if self._planner is None or not decoding:
            return
        candidates = [entry.candidate for entry in entries if entry.candidate is not None]
        rows = sum(len(entry.layout) for entry in entries)
        seconds = sum(clock.seconds[part] for part in ("forward", "verify", "compact"))
        alone = len(decoding) == len(entries)
        for candidate in candidates:
            candidate.seconds += self._recording / len(candidates)
        begin = time.perf_counter()
        self._planner.record(candidates, len(decoding), rows, self._batch.context(decoding), seconds if alone else None)
        self._recording = time.perf_counter() - begin if candidates else 0.0

    def _add_stats(self, entries: Sequence[BatchEntry], clock: Clock) -> None:
        self.stats.add_step(len(entries), sum(len(entry.layout) for entry in entries), clock.seconds)
        for entry in entries:
            if entry.request.stats.steps:
                entry.request.stats.add_seconds(clock.seconds)
            else:
                entry.request.stats.seconds["prefill"] += sum(clock.seconds.values())


def rows_needed(request: Request) -> int:
    """Cache rows that a request may need: its tokens and its largest tree."""
    return len(request.tokens) + (request.max_nodes if request.drafter else 0)


def _traced(
    entry: BatchEntry, outcomes: Mapping[int, Outcome | SuffolkError], result: Step | SuffolkError, clock: Clock
) -> Step | SuffolkError:
    """``result`` with its trace, if the request asks for one."""
    outcome = outcomes[entry.request.number]
    if not entry.request.options.trace or not isinstance(result, Step) or not isinstance(outcome, Outcome):
        return result
    return replace(result, traces=(entry.trace(outcome, result, clock.seconds),))


def _accepted_rows(rows: torch.Tensor, outcome: Outcome, count: int) -> torch.Tensor:
    """A copy of the ``rows`` float[n + 1, vocab] from which the first ``count`` new tokens were sampled."""
    return rows[torch.from_numpy(np.append(0, outcome.path + 1)[:count]).to(rows.device)]
