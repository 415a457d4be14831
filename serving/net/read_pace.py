"""How fast an HTTP server reads. A megabyte takes the event loop some 3 ms, even if nobody needs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl

RATE = 16 << 20
"""Bytes a second, over all connections."""
BURST = 4 << 20
"""Bytes that are read at once after a pause."""


class ReadPace:
    """Bounds the bytes a second that one server reads. Not thread-safe."""

    def __init__(self, rate: float = RATE, burst: float = BURST, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._free_at = 0.0  # when all bytes so far would have been read at the rate

    def take(self, size: int) -> float:
        """Count ``size`` bytes. Returns the seconds to wait before their connection is read again; 0 for none."""
        now = self._clock()
        self._free_at = max(self._free_at, now) + size / self._rate
        return max(self._free_at - now - self._burst / self._rate, 0.0)


class PacedFlow(FlowControl):
    """Pauses reading for the application, as uvicorn's, and for a ``ReadPace``. Both must let a connection go on."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._socket = transport
        self._held: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether reading is paused."""
        return self.read_paused or self._held is not None

    def hold(self, seconds: float, then: Callable[[], object]) -> None:
        """Read nothing for ``seconds``, and call ``then``. Call it with nothing held."""
        self._held = asyncio.get_running_loop().call_later(seconds, self._release, then)
        self._socket.pause_reading()

    def close(self) -> None:
        """The connection is lost."""
        if self._held is not None:
            self._held.cancel()

    def resume_reading(self) -> None:
        """Called by the application when it needs more."""
        if self._held is None:
            super().resume_reading()
        else:
            self.read_paused = False

    def _release(self, then: Callable[[], object]) -> None:
        self._held = None
        then()
        if not self.waits:
            self._socket.resume_reading()
