"""The step loop: propose, verify all requests in one pass of the target, keep what matches, tell the drafters."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from datastore.draft_tree import DraftTree
from datastore.errors import InvalidArgument, ResourceExhausted, SuffolkError
from serving.decoding.cost_measurement import measure
from serving.decoding.cost_model import CostModel
from serving.decoding.drafter import Drafter
from serving.decoding.memory import memory_guard
from serving.decoding.planner import Offer, Planner
from serving.decoding.proposals import Proposals
from serving.decoding.request import Request, Step
from serving.decoding.stats import LoopStats
from serving.decoding.target import Target
from serving.decoding.tree_layout import TreeLayout, chain, cut, lay_out
from serving.decoding.verification import accept

PREFILL_ROWS = 512
"""Rows of prompts in one pass."""

MAX_NODES = 1024


@dataclass(slots=True)
class _Turn:
    """One request's part of a step."""

    request: Request
    layout: TreeLayout
    wanted: int
    tree: DraftTree
    offer: Offer | None

    @property
    def reading(self) -> bool:
        """Whether the request still reads its prompt."""
        return not self.wanted


class StepLoop:
    """Decodes up to ``slots`` requests at once: they join and leave between steps. Not thread-safe.

    The tokens of a request depend on its prompt and settings alone: not on its drafter, nor on the others.
    """

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter] | None = None,
        costs: CostModel | None = None,
        slots: int = 1,
        capacity: int = 4096,
    ) -> None:
        """Allocates the cache.

        Args:
            drafters: by name; requests choose. The loop calls them from one thread and leaves them open.
            costs: the target's costs; None to measure them now if there are drafters.
            slots: requests at once, 1..1024.
            capacity: tokens of a request, prompt and rejected nodes included.

        Raises:
            InvalidArgument: a value is out of its range.
            ResourceExhausted: no memory for the cache.
        """
        if not 1 <= slots <= 1024:
            raise InvalidArgument(f"slots is {slots}; it must be between 1 and 1024")
        if capacity < 2:
            raise InvalidArgument(f"capacity is {capacity}; it must be 2 or more")
        self.target = target
        self.cache = target.new_cache(slots, capacity)
        self.stats = LoopStats()
        if drafters and costs is None:
            costs = measure(target, slots)
        self.planner = None if costs is None else Planner(costs)
        self._proposals = Proposals(drafters or {}, target.vocab_size)
        self._names = frozenset(drafters or {})
        self._running: list[Request] = []
        self._free = list(range(slots))[::-1]

    @property
    def running(self) -> Sequence[Request]:
        return self._running

    @property
    def free(self) -> int:
        """How many more requests may join."""
        return len(self._free)

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
        request.slot = self._free.pop()
        self.cache.clear(request.slot)
        if request.drafter and self.planner is not None:
            request.account = self.planner.open(request.drafter)
        self._running.append(request)

    def leave(self, request: Request, finish: str = "cancelled") -> None:
        """Take ``request`` out and free its slot at once; does nothing if it has left already."""
        if request not in self._running:
            return
        self._running.remove(request)
        self._free.append(request.slot)
        request.stats.finish = request.stats.finish or finish
        if request.account is not None:
            self._proposals.release(request)
            request.account.close()
        self.stats.add_request(request.stats)

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
        clock = _Clock()
        turns = self._turns()
        clock.lap("draft")
        slots = [turn.request.slot for turn in turns]
        logits = self.target.forward(
            self.cache, slots, [turn.layout for turn in turns], [turn.wanted for turn in turns]
        )
        self.target.synchronize()
        clock.lap("forward")
        drawn, failed = self._draw(logits, turns)
        paths = [
            np.empty(0, np.int64) if turn.reading else accept(turn.tree.tokens, turn.tree.parents, each)
            for turn, each in zip(turns, drawn, strict=True)
        ]
        clock.lap("verify")
        self.cache.keep(slots, [_kept(turn, path) for turn, path in zip(turns, paths, strict=True)])
        clock.lap("compact")
        answers: list[tuple[Request, Step | SuffolkError]] = []
        for turn, each, path in zip(turns, drawn, paths, strict=True):
            answer = failed.get(turn.request.number) or self._commit(turn, each, path)
            if answer is not None:
                answers.append((turn.request, answer))
        self._learn(turns, clock)
        clock.lap("other")
        self._book(turns, clock)
        for request, answer in answers:
            if isinstance(answer, SuffolkError):
                self.leave(request, "error")
            elif answer.finish:
                self.leave(request)
        return answers

    def _turns(self) -> list[_Turn]:
        """What each request brings to this pass: rows of its prompt, or its last token and a tree behind it."""
        turns: list[_Turn] = []
        decoding: list[Request] = []
        budget = PREFILL_ROWS
        for request in self._running:
            cached = int(self.cache.lengths[request.slot])
            pending = request.length - cached
            if pending == 1 and request.length > request.stats.prompt_tokens:
                decoding.append(request)
            elif budget:
                size = min(pending, budget)
                budget -= size
                rows = request.tokens[cached : cached + size].astype(np.int64)
                turns.append(_Turn(request, chain(rows), int(size == pending), DraftTree.empty(), None))
        reading_rows = sum(len(turn.layout) for turn in turns)
        return [*self._proposed(decoding, reading_rows), *turns]

    def _proposed(self, decoding: list[Request], reading_rows: int) -> list[_Turn]:
        asking = [
            request for request in decoding if request.account is not None and request.room > 0
            and request.account.should_propose()
        ]  # fmt: skip
        trees, seconds = self._proposals.ask(asking)
        offers = {
            request.number: Offer(request.drafter, account, tree.scores, spent)
            for request, tree, spent in zip(asking, trees, seconds, strict=True)
            if (account := request.account) is not None
        }
        if self.planner is not None:
            self.planner.choose(
                list(offers.values()), len(decoding), len(decoding) + reading_rows, self._context(decoding)
            )
        drafts = {request.number: tree for request, tree in zip(asking, trees, strict=True)}
        turns = []
        for request in decoding:
            offer = offers.get(request.number)
            tree = DraftTree.empty()
            if offer is not None:
                request.stats.proposals += 1
                request.stats.nodes_proposed += len(offer.scores)
                tree = cut(drafts[request.number].head(offer.verified), request.room)
                offer.verified = len(tree)
                request.stats.nodes_verified += len(tree)
            layout = lay_out(int(request.tokens[request.length - 1]), tree)
            turns.append(_Turn(request, layout, len(layout), tree, offer))
        return turns

    def _draw(
        self, logits: torch.Tensor, turns: Sequence[_Turn]
    ) -> tuple[list[npt.NDArray[np.int64]], dict[int, SuffolkError]]:
        """The target's token at each wanted row, by request; the step's one copy from device to host. And who failed."""
        drawn: list[torch.Tensor] = []
        failed: dict[int, SuffolkError] = {}
        with torch.inference_mode():
            for turn, rows in zip(turns, torch.split(logits, [turn.wanted for turn in turns]), strict=True):
                try:
                    drawn.append(_draw(turn, rows))
                except SuffolkError as error:
                    failed[turn.request.number] = error
                    drawn.append(torch.zeros(turn.wanted, dtype=torch.int64, device=logits.device))
            host = np.asarray(torch.cat(drawn).cpu().numpy(), np.int64)
        return np.split(host, np.cumsum([turn.wanted for turn in turns])[:-1]), failed

    def _commit(self, turn: _Turn, drawn: npt.NDArray[np.int64], path: npt.NDArray[np.int64]) -> Step | None:
        if turn.reading:
            return None
        request = turn.request
        before = request.length
        marks = [*turn.tree.sources[path].tolist(), 0]
        step = request.commit(drawn[np.concatenate([[0], path + 1])].tolist(), marks)
        if before > request.stats.prompt_tokens:
            request.stats.steps += 1
        if turn.offer is not None:
            turn.offer.accepted = len(step.tokens) - 1
            self._proposals.observe(request, request.tokens[before : request.length])
        return step

    def _learn(self, turns: Sequence[_Turn], clock: _Clock) -> None:
        decoding = [turn.request for turn in turns if turn.request.stats.steps]
        if self.planner is None or not decoding:
            return
        offers = [turn.offer for turn in turns if turn.offer is not None]
        rows = sum(len(turn.layout) for turn in turns)
        seconds = sum(clock.seconds[part] for part in ("forward", "verify", "compact"))
        alone = len(decoding) == len(turns)
        self.planner.record(offers, len(decoding), rows, self._context(decoding), seconds if alone else None)

    def _context(self, requests: Sequence[Request]) -> float:
        """Cached tokens of ``requests`` in the mean."""
        return float(np.mean(self.cache.lengths[[request.slot for request in requests]])) if requests else 0.0

    def _book(self, turns: Sequence[_Turn], clock: _Clock) -> None:
        self.stats.add_step(len(turns), sum(len(turn.layout) for turn in turns), clock.seconds)
        for turn in turns:
            if turn.request.stats.steps:
                turn.request.stats.add_seconds(clock.seconds)
            else:
                turn.request.stats.seconds["prefill"] += sum(clock.seconds.values())


def rows_needed(request: Request) -> int:
    """Cache rows that a request may take: its tokens, and the nodes of its largest tree."""
    return len(request.tokens) + (request.max_nodes if request.drafter else 0)


def _draw(turn: _Turn, rows: torch.Tensor) -> torch.Tensor:
    if turn.reading:
        return rows.new_zeros(0, dtype=torch.int64)
    depths = turn.layout.depths[-turn.wanted :] if len(turn.tree) else np.zeros(1, np.int64)
    positions = [turn.request.length + depth for depth in range(int(depths.max()) + 1)]
    which = None if len(positions) == 1 else torch.from_numpy(depths).to(rows.device)
    return turn.request.sampler.draw(rows, positions, which)


def _kept(turn: _Turn, path: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The rows to keep: a prompt's, or the last token's and the accepted nodes'."""
    return np.concatenate([[0], path + 1]) if len(turn.tree) else np.arange(len(turn.layout))


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Books the time since the last lap under ``part``."""
        now = time.perf_counter()
        self.seconds[part] = now - self._last
        self._last = now
