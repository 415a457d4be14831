"""The engine. It runs a step loop in a thread, behind a bounded queue."""

from __future__ import annotations

import atexit
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from suffolk.datastore.checks import check_range, or_default, whole_number
from suffolk.datastore.errors import Field, Internal, InvalidArgument, ResourceExhausted, SuffolkError, Unavailable
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.draft_options import DEFAULT_OPTIONS, DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import GREEDY, Drafter, datastore_names
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.prompt import Prompt
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.thread_waits import release_team
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line

log = logging.getLogger(__name__)

_STATS_AGE = 0.05
"""Seconds between updates of ``stats``, because an update takes 0.25 ms, too long for every step."""


class Engine:
    """Generates for many requests at once. Safe to use from any thread; a context manager that closes itself.

    A request's tokens depend on its prompt and settings, never on other requests. With verification ``match``, the tokens do
    not depend on the request's drafter. With ``rejection``, the distribution of the tokens does not depend on the drafter.
    With ``typical``, the tokens do depend on the drafter.

    Attributes:
        target: the model whose text is produced.
        drafters, datastores: the names that a request may choose from, sorted.
        slots, capacity, queue: as given.
        cache_bytes: memory of the cache, which is allocated at the start.
        death: the error that ended the engine; None while the engine runs and after ``close``.
    """

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter | None] | None = None,
        costs: CostModel | None = None,
        slots: int = 8,
        capacity: int = 4096,
        queue: int = 64,
        passes: str = "auto",
        prefix_reuse: bool = True,
    ) -> None:
        """Allocates the cache and starts the thread.

        Args:
            target: the model whose text is produced.
            drafters: by name; each request chooses one. ``close`` closes the drafters. None values are ignored.
            costs: the target's measured costs, which the engine copies; None measures them now if there are drafters.
            slots: requests that are decoded at once, 1..1024.
            capacity: tokens of a request, its prompt and its largest tree included.
            queue: requests that may wait for a slot, 0 or more.
            passes: the kind of forward passes (``Passes``). ``packed``: as many rows as needed. ``captured``: decoding in a few
                static shapes, which CUDA replays as graphs. ``compiled``: for a CPU, by torch and a C++ compiler, which takes a
                minute or more at the start. ``graph``: on CUDA, compiled and captured at the start, for prompts too.
                ``auto``: ``captured`` on CUDA, else ``packed``.
            prefix_reuse: whether a prompt takes over the cache rows of another text of its tenant that begins in the same way.

        Raises:
            InvalidArgument: a value is out of its range.
            ResourceExhausted: no memory for the cache.
            Unsupported: the model cannot run ``captured`` or ``compiled`` passes; or ``graph`` passes are chosen without CUDA.
        """
        slots, capacity, queue = (
            whole_number(name, value) for name, value in (("slots", slots), ("capacity", capacity), ("queue", queue))
        )
        check_range("queue", queue, 0)
        if costs is not None and not isinstance(costs, CostModel):
            raise InvalidArgument(
                Field("costs"), f" is of type {type(costs).__name__}; give a CostModel, as find_costs(...).costs is"
            )
        self._drafters = _by_name(drafters)
        self._loop = StepLoop(target, self._drafters, costs, slots, capacity, passes, prefix_reuse)
        self.target, self.slots, self.capacity, self.queue = target, slots, capacity, queue
        self.drafters = tuple(sorted(self._drafters))
        self.datastores = tuple(sorted({name for each in self._drafters.values() for name in datastore_names(each)}))
        self.cache_bytes = self._loop.cache.nbytes
        self.death: SuffolkError | None = None
        self._numbers = itertools.count(1)
        self._waiting: deque[Generation] = deque()
        self._running: dict[int, Generation] = {}
        self._cancelled: list[Generation] = []
        self._changed = threading.Condition()
        self._stats = self._loop.totals()
        self._stats_due = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="suffolk-engine", daemon=True)
        self._ended = threading.Event()
        if target.device.type == "cpu":
            release_team()  # of this thread: only the engine's thread needs one
        self._thread.start()
        atexit.register(self._close_at_exit)

    @property
    def slowdown(self) -> float:
        """Time of the target's passes now, divided by their measured time (``CostModel``); 1 without drafters."""
        return self._loop.slowdown

    @property
    def alive(self) -> bool:
        """Whether the engine runs. False after an error or ``close``, and in a forked child, which has no engine thread."""
        return not self._ended.is_set() and self._thread.is_alive()

    def generate(
        self,
        prompt: Prompt,
        settings: SamplingSettings | None = None,
        drafter: str | None = "",
        max_nodes: int = 64,
        options: DraftOptions | None = None,
    ) -> Generation:
        """Start a generation. It runs whether or not its steps are read.

        Args:
            prompt: a text to continue, a conversation of (role, content) messages to answer, or token ids.
            settings: None for greedy decoding of up to 256 tokens.
            drafter: the name of a drafter of the engine; None, empty or "none" for plain decoding.
            max_nodes: the most nodes of a draft tree, 1..1024.
            options: a predicted text, the datastores to search, and whether the text may be kept; None for the defaults.

        Raises:
            InvalidArgument: the prompt or a value cannot be used.
            ResourceExhausted: no slot is free and the queue is full, or the request is too long for a slot.
            Unavailable: the engine has died or is closed.
        """
        settings, max_nodes = or_default("settings", settings, GREEDY), whole_number("max_nodes", max_nodes)
        if not isinstance(drafter, str | None):
            raise InvalidArgument(
                Field("drafter"), f" is of type {type(drafter).__name__}; give the name of one of the engine's"
            )
        name, options = "" if drafter in (None, "none") else drafter, or_default("options", options, DEFAULT_OPTIONS)
        options.require_known(self.datastores)
        request = Request(next(self._numbers), self.target, prompt, settings, name, max_nodes, options)
        self._loop.require_room(request)
        generation = Generation(request, self._cancel)
        with self._changed:
            self._require_alive()
            if (present := self._present()) >= self.slots + self.queue:
                limits = f"the slots hold {self.slots} and the queue holds {self.queue}"
                raise ResourceExhausted(f"{present} requests run or wait; {limits}; try again later", retry_seconds=1.0)
            self._waiting.append(generation)
            self._changed.notify_all()
        return generation

    def stats(self) -> dict[str, Any]:
        """The counts and seconds of ``LoopStats``, and the numbers of running and waiting requests.

        All values are at most 0.05 s or one step old.
        """
        with self._changed:
            return self._stats | {"running": len(self._running), "waiting": len(self._waiting)}

    def cancel_all(self) -> int:
        """Cancel all requests that run or wait. Returns their number."""
        with self._changed:
            found = [*self._running.values(), *self._waiting]
            self._cancelled += found
            self._changed.notify_all()
        return len(found)

    def close(self) -> None:
        """Cancel all requests, end the thread and close the drafters. Idempotent. Errors of drafters are logged."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        # a forked child lacks this thread
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._ended.wait()  # after an interrupt, Thread.join may return too early
            self._thread.join()
        with self._changed:
            drafters, self._drafters = self._drafters, {}
        for name, drafter in drafters.items():
            try:
                drafter.close()
            except USER_CODE_ERRORS as error:  # the other drafters must be closed too
                log.warning("drafter %s: it could not be closed: %s", name, first_line(error))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close_at_exit(self) -> None:
        """End the thread before the interpreter ends. If the thread were killed inside the model's pass, the process would abort.

        Called if the engine was not closed, or if a second Ctrl-C interrupted ``close``.
        """
        if self._thread.is_alive():
            self.close()

    def _require_alive(self) -> None:
        if self.death is not None:
            raise Unavailable(f"the engine has died ({self.death}); start it again")
        if self._closing:
            raise Unavailable("the engine is closed")
        if not self._thread.is_alive():
            raise Unavailable("the engine's thread is not in this process, which was forked; make an engine here")

    def _present(self) -> int:
        """The number of requests that run or wait, without cancelled requests, which keep their slots until the pass ends."""
        cancelled = {generation.request.number for generation in self._cancelled}
        return sum(each.request.number not in cancelled for each in (*self._running.values(), *self._waiting))

    def _cancel(self, generation: Generation) -> None:
        with self._changed:
            self._cancelled.append(generation)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            self._step_on()
        finally:
            atexit.unregister(self._close_at_exit)  # the registration keeps the engine and the model in memory
            self._ended.set()

    def _step_on(self) -> None:
        error: SuffolkError | None = None
        try:
            while self._admit():
                self._deliver(self._loop.step())
        except SuffolkError as fault:
            error = fault
        except BaseException as fault:
            # nothing else catches errors in this thread, and waiting callers must receive them
            log.exception("the engine has died")
            error = Internal(first_line(fault))
        with self._changed:
            self.death = error
            for generation in [*self._running.values(), *self._waiting]:
                generation.request.stats.finish = generation.request.stats.finish or ("error" if error else "cancelled")
                generation.end(error)
            self._running.clear()
            self._waiting.clear()

    def _admit(self) -> bool:
        """Remove cancelled requests and start waiting ones, between two steps. Blocks while there is no request.

        Returns False when the engine closes.
        """
        with self._changed:
            while not (self._running or self._waiting or self._closing):
                self._cancelled.clear()
                self._changed.wait()
            for generation in self._cancelled:
                self._drop(generation)
            if self._cancelled:
                self._stats = self._loop.totals()
                self._cancelled.clear()
            while self._waiting and self._loop.free:
                generation = self._waiting.popleft()
                self._loop.join(generation.request)
                self._running[generation.request.number] = generation
            return not self._closing

    def _drop(self, generation: Generation) -> None:
        request = generation.request
        if self._running.pop(request.number, None) is not None:
            self._loop.leave(request)
        elif generation in self._waiting:
            self._waiting.remove(generation)
            request.stats.finish = "cancelled"
            self._loop.stats.add_request(request.stats)
        generation.end()

    def _deliver(self, results: list[tuple[Request, Step | SuffolkError]]) -> None:
        ended = any(request.stats.finish for request, _ in results)
        fresh = ended or time.monotonic() > self._stats_due
        totals = self._loop.totals() if fresh else self._stats
        with self._changed:
            if fresh:
                self._stats, self._stats_due = totals, time.monotonic() + _STATS_AGE
            for request, result in results:
                generation = self._running[request.number]
                if isinstance(result, Step):
                    generation.put(result)
                if request.stats.finish:
                    del self._running[request.number]
                    generation.end(result if isinstance(result, SuffolkError) else None)


def _by_name(drafters: Mapping[str, Drafter | None] | None) -> dict[str, Drafter]:
    if drafters is not None and not isinstance(drafters, Mapping):
        raise InvalidArgument(
            Field("drafters"), f" is of type {type(drafters).__name__}; give a dict of drafters by name"
        )
    found = {name: drafter for name, drafter in (drafters or {}).items() if drafter is not None}
    for name, drafter in found.items():
        if not isinstance(name, str) or not callable(getattr(drafter, "propose", None)):
            raise InvalidArgument(f"drafters[{name!r}] is of type {type(drafter).__name__}; give a Drafter by its name")
    return found
