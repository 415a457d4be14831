"""Parses bodies of requests. Large ones take turns, because parsing holds Python's lock for up to 0.1 s."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

LARGE = 1 << 16
"""Bytes of a body that takes a turn."""
SHARE = 0.1
"""The part of the time in which large bodies are parsed."""
T = TypeVar("T")


class LargeBodies:
    """Parses the bodies of one server in threads: large ones one at a time, and a tenth of the time.

    Bodies wait for their turn on the event loop, so that they occupy no thread. A single caller waits for nothing.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of ``work``, which parses a body of ``size`` bytes. Raises its errors."""
        if size <= LARGE:
            return await asyncio.to_thread(work)
        await self._turn.acquire()
        try:
            if (wait := self._free_at - self._clock()) > 0:
                await self._sleep(wait)
        except BaseException:
            self._turn.release()
            raise
        return await asyncio.shield(
            asyncio.ensure_future(self._take_turn(work))
        )  # a cancelled call cannot end the thread

    async def _take_turn(self, work: Callable[[], T]) -> T:
        begin = self._clock()
        try:
            return await asyncio.to_thread(work)
        finally:
            end = self._clock()
            self._free_at = end + (end - begin) * (1 / SHARE - 1)
            self._turn.release()
