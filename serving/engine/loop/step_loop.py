"""The step loop: propose, verify all requests in one pass of the target, keep what matches, tell the drafters."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import Internal, InvalidArgument, ResourceExhausted, SuffolkError
from suffolk.datastore.retriever import MAX_NODES
from suffolk.serving.engine.loop.batch_entry import BatchEntry
from suffolk.serving.engine.loop.clock import Clock
from suffolk.serving.engine.loop.drafter import Drafter, tree_of
from suffolk.serving.engine.loop.drafter_pool import DrafterPool
from suffolk.serving.engine.loop.request import Request, Step
from suffolk.serving.engine.loop.stats import LoopStats
from suffolk.serving.engine.loop.step_batch import StepBatch
from suffolk.serving.engine.loop.user_code_errors import USER_CODE_ERRORS, first_line
from suffolk.serving.engine.loop.verify_step import Outcome, verify
from suffolk.serving.engine.model.memory import memory_guard
from suffolk.serving.engine.model.pass_result import PassResult
from suffolk.serving.engine.model.passes import Passes, require_states
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.policy.cost_measurement import measure
from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.policy.planner import Planner

log = logging.getLogger(__name__)


class StepLoop:
    """Decodes up to ``slots`` requests at once: they join and leave between steps. Not thread-safe."""

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter] | None = None,
        costs: CostModel | Planner | None = None,
        slots: int = 1,
        capacity: int = 4096,
        passes: str = "auto",
    ) -> None:
        """Allocates the cache.

        Args:
            drafters: by name; requests choose. The loop calls them from one thread and leaves them open.
            costs: the target's costs as measured, which are left as they are; None to measure them now if there are drafters; or
                who is to size trees in place of the ``Planner`` of these costs.
            slots: requests at once, 1..1024.
            capacity: tokens of a request, prompt and rejected nodes included.
            passes: auto, packed, captured or compiled (``passes.py``).

        Raises:
            InvalidArgument: a value is out of its range.
            ResourceExhausted: no memory for the cache.
            Unsupported: ``captured`` or ``compiled`` passes, and the model has none.
        """
        if not 1 <= slots <= 1024:
            raise InvalidArgument(f"slots is {slots}; it must be between 1 and 1024")
        if capacity < 2:
            raise InvalidArgument(f"capacity is {capacity}; it must be 2 or more")
        self.target = target
        self.cache = target.new_cache(slots, capacity)
        self.stats = LoopStats()
        self._proposals = DrafterPool(drafters or {}, target, self.cache)
        require_states(target, passes, self._proposals.layers)
        if drafters and costs is None:
            costs = measure(target, slots, passes=passes)
        self._planner = Planner(costs.copy()) if isinstance(costs, CostModel) else costs  # it corrects its own
        self._turns = StepBatch(self.cache, self._proposals, self._planner, self.stats)
        self._passes = Passes(target, self.cache, passes, self._proposals.layers)
        self._names = frozenset(drafters or {})
        self._running: list[Request] = []
        self._recording = 0.0  # seconds of the planner's last record, which its drafts cost too
        self._free = list(range(slots))  # a heap: passes of static shape run over the first slots

    @property
    def running(self) -> Sequence[Request]:
        return self._running

    @property
    def free(self) -> int:
        """How many more requests may join."""
        return len(self._free)

    @property
    def drifts(self) -> int:
        """How often real steps took so much longer or shorter than measured that all costs were scaled."""
        return 0 if self._planner is None else self._planner.costs.drifts

    def require_room(self, request: Request) -> None:
        """Raises InvalidArgument if ``request`` names no drafter of this loop, ResourceExhausted if no slot is that large."""
        if request.drafter and request.drafter not in self._names:
            known = ", ".join(sorted(self._names)) or "none"
            raise InvalidArgument(f"drafter {request.drafter!r} is not loaded; loaded: {known}")
        if not 1 <= request.max_nodes <= MAX_NODES:
            raise InvalidArgument(f"max_nodes is {request.max_nodes}; it must be between 1 and {MAX_NODES}")
        needed = rows_needed(request)
        if needed > self.cache.capacity:
            raise ResourceExhausted(
                f"the request needs {needed} cache rows (prompt, new tokens, largest tree); a slot has {self.cache.capacity}; "
                "shorten the prompt, ask for fewer tokens, or start the engine with a larger capacity"
            )

    def join(self, request: Request) -> None:
        """Let ``request`` take part from the next step on. Raises as ``require_room``, and ResourceExhausted if no slot is free."""
        self.require_room(request)
        if not self._free:
            raise ResourceExhausted(f"all {self.cache.slots} slots are taken; wait until one is free")
        request.slot = heapq.heappop(self._free)
        self.cache.clear(request.slot)
        if request.drafter and self._planner is not None:
            request.ledger = self._planner.open(request.drafter, request.drafter in self._proposals.mixed)
        self._running.append(request)

    def leave(self, request: Request, finish: str = "cancelled") -> None:
        """Take ``request`` out and free its slot at once; does nothing if it has left already."""
        if request not in self._running:
            return
        self._running.remove(request)
        heapq.heappush(self._free, request.slot)
        request.stats.finish = request.stats.finish or finish
        if request.ledger is not None:
            self._proposals.release(request)
            request.ledger.close()
        self.stats.add_request(request.stats)

    def totals(self) -> dict[str, Any]:
        """``stats``, what running requests missed included, ready for JSON."""
        missed = sum((request.stats.missed for request in self._running if request.stats.missed), self.stats.missed)
        return self.stats.to_dict() | {"missed": dict(missed)}

    def step(self) -> list[tuple[Request, Step | SuffolkError]]:
        """One pass for all running requests: what each of them got, or why it failed. Ended requests have left.

        Raises:
            ResourceExhausted: the device has no memory for the pass.
        """
        if not self._running:
            return []
        with memory_guard(f"model {self.target.name}, {len(self._running)} requests"):
            return self._step()

    def _step(self) -> list[tuple[Request, Step | SuffolkError]]:
        clock = Clock()
        turns = self._turns.take(self._running, clock)
        clock.lap("draft")
        try:
            read, rows, outcomes = self._read(turns, clock)
        except ResourceExhausted as error:  # by the drafts, perhaps, and these must fail nobody
            turns = self._without_drafts(turns, error)
            read, rows, outcomes = self._read(turns, clock)
        slots = [turn.request.slot for turn in turns]
        kept = [turn.kept(outcomes.get(turn.request.number)) for turn in turns]
        self.cache.keep(slots, kept)
        clock.lap("compact")
        if read.features is not None:
            self._hand_over(turns, kept, read.features)
        answers: list[tuple[Request, Step | SuffolkError]] = []
        for turn in turns:
            outcome = outcomes.get(turn.request.number)
            if outcome is not None:
                answers.append((turn.request, self._answer(turn, outcome)))
        self._tell(turns, outcomes, rows)
        self._learn(turns, clock)
        clock.lap("other")
        self._book(turns, clock)
        for request, answer in answers:
            if isinstance(answer, SuffolkError):
                self.leave(request, "error")
            elif answer.finish:
                self.leave(request)
        return answers

    def _read(
        self, turns: Sequence[BatchEntry], clock: Clock
    ) -> tuple[PassResult, dict[int, torch.Tensor], dict[int, Outcome | SuffolkError]]:
        """The pass, the logits of each request that wants some, by its number, and its outcome. Until the cache keeps its rows it
        can be made again. Raises ResourceExhausted."""
        slots = [turn.request.slot for turn in turns]
        layouts, wanted = [turn.layout for turn in turns], [turn.wanted for turn in turns]
        with memory_guard(f"model {self.target.name}, {len(turns)} requests"):
            self._passes.prepare(slots, layouts, wanted)
            clock.lap("other")
            read = self._passes.forward(slots, layouts, wanted)
            self.target.synchronize()
            clock.lap("forward")
            rows = self._split(turns, read.logits)
            outcomes = self._verify(turns, rows)
            clock.lap("verify")
        return read, rows, outcomes

    @staticmethod
    def _without_drafts(turns: Sequence[BatchEntry], error: ResourceExhausted) -> list[BatchEntry]:
        """The same step of plain decoding; its drafts are missed. Raises ``error`` if it has none."""
        if not any(turn.has_draft for turn in turns):
            raise error
        log.warning("%s; going on without the drafts of this step", error)
        for turn in turns:
            if turn.has_draft:
                turn.request.stats.missed[type(error).__name__] += 1
        return [turn.without_draft() for turn in turns]

    @staticmethod
    def _split(turns: Sequence[BatchEntry], logits: torch.Tensor) -> dict[int, torch.Tensor]:
        """The rows of each request that got logits, by its number."""
        drawing = [turn for turn in turns if not turn.reading]
        rows = torch.split(logits, [turn.wanted for turn in drawing]) if drawing else ()
        return {turn.request.number: each for turn, each in zip(drawing, rows, strict=True)}

    @staticmethod
    def _verify(turns: Sequence[BatchEntry], rows: Mapping[int, torch.Tensor]) -> dict[int, Outcome | SuffolkError]:
        """The outcome of each request that got logits, by its number."""
        drawing = [turn for turn in turns if turn.request.number in rows]
        requests, proposals = [turn.request for turn in drawing], [turn.proposal for turn in drawing]
        return dict(zip(rows, verify(requests, proposals, list(rows.values())), strict=True))

    def _answer(self, turn: BatchEntry, outcome: Outcome | SuffolkError) -> Step | SuffolkError:
        """What the request gets. A tokenizer that cannot write its tokens fails it alone."""
        if isinstance(outcome, SuffolkError):
            return outcome
        try:
            return self._commit(turn, outcome)
        except USER_CODE_ERRORS as error:
            log.exception("request %d: what was drawn cannot be written", turn.request.number)
            turn.request.stats.finish = ""
            return Internal(f"what was drawn cannot be written: {first_line(error)}")

    def _commit(self, turn: BatchEntry, outcome: Outcome) -> Step:
        request, tree = turn.request, tree_of(turn.proposal)
        before = request.length
        tokens = [*tree.tokens[outcome.path].tolist(), outcome.token]
        step = request.commit(tokens, [*tree.sources[outcome.path].tolist(), 0], outcome.log_probabilities)
        self.stats.add_tokens(step.sources)
        if before > request.stats.prompt_tokens:
            request.stats.steps += 1
            self.stats.steps += 1
        if turn.offer is not None:
            turn.offer.accept(outcome.path, len(step.tokens) - 1)
            begin = time.perf_counter()
            self._proposals.observe(request, request.tokens[before : request.length])
            turn.offer.seconds += time.perf_counter() - begin  # to learn is part of what drafts cost
        return step

    def _tell(
        self,
        turns: Sequence[BatchEntry],
        outcomes: Mapping[int, Outcome | SuffolkError],
        rows: Mapping[int, torch.Tensor],
    ) -> None:
        """Tell drafters that want it what the new tokens were drawn from. It is part of what drafts cost, and therefore those that
        may not draft do not learn either."""
        begin = time.perf_counter()
        requests, said = [], []
        for turn in turns:
            outcome = outcomes.get(turn.request.number)
            ledger = turn.request.ledger
            if isinstance(outcome, Outcome) and ledger and not ledger.rests and self._proposals.learns(turn.request):
                new = turn.offer.accepted + 1 if turn.offer is not None else 1
                kept = torch.from_numpy(np.append(0, outcome.path + 1)[:new])
                requests.append(turn.request)
                said.append(rows[turn.request.number][kept.to(rows[turn.request.number].device)])
        if not requests:
            return
        self._proposals.learn_logits(requests, said)
        seconds = (time.perf_counter() - begin) / len(requests)
        for turn in turns:
            if turn.offer is not None and self._proposals.learns(turn.request):
                turn.offer.seconds += seconds

    def _hand_over(
        self, turns: Sequence[BatchEntry], kept: Sequence[npt.NDArray[np.int64]], features: torch.Tensor
    ) -> None:
        """Give the hidden states of the rows that the cache has kept to the requests' drafters."""
        begin = 0
        for turn, rows in zip(turns, kept, strict=True):
            if turn.request.drafter:
                self._proposals.follow(turn.request, features, begin + rows)
            begin += len(turn.layout)

    def _learn(self, turns: Sequence[BatchEntry], clock: Clock) -> None:
        decoding = [turn.request for turn in turns if turn.request.stats.steps]
        if self._planner is None or not decoding:
            return
        offers = [turn.offer for turn in turns if turn.offer is not None]
        rows = sum(len(turn.layout) for turn in turns)
        seconds = sum(clock.seconds[part] for part in ("forward", "verify", "compact"))
        alone = len(decoding) == len(turns)
        for offer in offers:
            offer.seconds += self._recording / len(offers)
        begin = time.perf_counter()
        self._planner.record(offers, len(decoding), rows, self._turns.context(decoding), seconds if alone else None)
        self._recording = time.perf_counter() - begin if offers else 0.0

    def _book(self, turns: Sequence[BatchEntry], clock: Clock) -> None:
        self.stats.add_step(len(turns), sum(len(turn.layout) for turn in turns), clock.seconds)
        for turn in turns:
            if turn.request.stats.steps:
                turn.request.stats.add_seconds(clock.seconds)
            else:
                turn.request.stats.seconds["prefill"] += sum(clock.seconds.values())


def rows_needed(request: Request) -> int:
    """Cache rows that a request may take: its tokens, and the nodes of its largest tree."""
    return len(request.tokens) + (request.max_nodes if request.drafter else 0)
