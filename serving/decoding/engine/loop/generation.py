"""The caller's handle for a running generation."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability

Waiter = tuple[asyncio.AbstractEventLoop, asyncio.Event]


class Generation(Iterator[Step], AsyncIterator[Step]):
    """An iterator over a request's steps, for ``for`` or ``async for``. One reader; ``cancel`` is safe in any thread.

    The engine does not wait for the reader. Unread steps are kept, at most one per token. The slot is freed when the text ends,
    even if steps are unread.
    """

    def __init__(self, request: Request, cancel: Callable[[Generation], None]) -> None:
        self.request = request
        self.stats = request.stats
        self._cancel = cancel
        self._steps: deque[Step] = deque()
        self._ended = False
        self._error: SuffolkError | None = None
        self._changed = threading.Condition()
        self._waiters: list[Waiter] = []

    @property
    def tokens(self) -> list[int]:
        """The tokens generated so far."""
        return self.request.generated

    @property
    def ended(self) -> bool:
        """Whether the generation has ended and its slot is free. Unread steps can still be read."""
        with self._changed:
            return self._ended

    @property
    def log_probabilities(self) -> list[LogProbability]:
        """Log-probabilities of ``tokens``; empty unless ``logprobs`` is set."""
        return self.request.log_probabilities[:]

    @property
    def prompt_log_probabilities(self) -> list[LogProbability]:
        """Log-probabilities of the prompt's tokens except the first; empty unless ``prompt_logprobs`` is set."""
        return self.request.prompt_log_probabilities[:]

    def cancel(self) -> None:
        """End the generation and free its slot before the engine's next step. Does nothing if it has ended."""
        self._cancel(self)

    def close(self) -> None:
        """The same as ``cancel``, for ``contextlib.closing``."""
        self.cancel()

    def __next__(self) -> Step:
        with self._changed:
            while not self._steps and not self._ended:
                self._changed.wait()
        step = self._take()
        if step is None:
            raise StopIteration
        return step

    async def __anext__(self) -> Step:
        waiter = asyncio.get_running_loop(), asyncio.Event()
        with self._changed:
            ready = bool(self._steps) or self._ended
            if not ready:
                self._waiters.append(waiter)
        if not ready:
            try:
                await waiter[1].wait()
            finally:
                self._forget(waiter)
        step = self._take()
        if step is None:
            raise StopAsyncIteration
        return step

    def put(self, step: Step) -> None:
        """Add one more step. For the engine."""
        with self._changed:
            self._steps.append(step)
            self._wake()

    def end(self, error: SuffolkError | None = None) -> None:
        """End the steps. For the engine. ``error`` is raised after the last step."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
                self._wake()

    def _take(self) -> Step | None:
        with self._changed:
            if self._steps:
                return self._steps.popleft()
            error, self._error = self._error, None
        if error is not None:
            raise error
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        for loop, event in self._waiters:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so no task waits in it
                loop.call_soon_threadsafe(event.set)
        self._waiters.clear()

    def _forget(self, waiter: Waiter) -> None:
        with self._changed:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
