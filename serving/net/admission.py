"""Limits the calls that run at a time, and rejects further calls. ``authenticator.py`` decides who may call."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from suffolk.datastore.errors import ResourceExhausted, Unavailable

RETRY_SECONDS = 0.1
"""Least time after which a refused caller is asked to come back."""
RETURNS_PER_SECOND = 250
"""Refused callers that are asked to come back within the same second. More of them would slow down calls that are
answered."""
MAX_RETRY_SECONDS = 1.0
"""Longest time after which a refused caller is asked to come back, unless a quota sets another time. A server that starts or
stops names this time too."""


class Readiness:
    """The state of a server that health checks report. Thread-safe.

    Attributes:
        reason: why no calls are accepted; empty if they are.
    """

    def __init__(self) -> None:
        self.reason = "starting"

    def is_set(self) -> bool:
        """Whether calls are accepted."""
        return not self.reason

    def set(self) -> None:
        """Calls are accepted from now on."""
        self.reason = ""

    def clear(self, reason: str) -> None:
        """Calls are not accepted from now on, for this reason. An earlier reason stays."""
        self.reason = self.reason or reason


class RetryTimes:
    """Spreads the callers that a full server refuses, so that they do not all come back at once. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._returns = TokenBucket(RETURNS_PER_SECOND, 1, clock)

    def next(self) -> float:
        """Seconds after which the next refused caller shall come back: RETRY_SECONDS to MAX_RETRY_SECONDS."""
        self._returns.take(1, RETURNS_PER_SECOND * (RETRY_SECONDS - MAX_RETRY_SECONDS))
        return min(RETRY_SECONDS + self._returns.take(0), MAX_RETRY_SECONDS)


class AdmissionController:
    """Accepts up to ``max_in_flight`` calls at a time and rejects the others; there is no queue. Thread-safe.

    ``DraftService.handle_call``, ``DecodeServicer`` and ``serving/worker/openai`` enter ``admit_call``. gRPC and HTTP share
    one limit.

    Attributes:
        max_in_flight: the limit.
        option: the command-line option that sets it, for error messages.
        retries: when rejected callers may try again.
    """

    def __init__(self, max_in_flight: int, option: str) -> None:
        self.max_in_flight = max_in_flight
        self.option = option
        self.retries = RetryTimes()
        self._changed = threading.Condition()
        self._in_flight = 0
        self._aside = 0
        self._closed = False
        self._of_thread = threading.local()

    def in_flight(self) -> int:
        """Calls that are running now."""
        return self._in_flight

    @contextmanager
    def admit_call(self, places: int = 1) -> Iterator[None]:
        """Count one call as running. It occupies ``places`` places, for example one per generated text.

        Raises:
            ResourceExhausted: fewer than ``places`` places are free.
            Unavailable: the server is stopping.
        """
        with self._changed:
            if self._closed:
                raise Unavailable("the server is stopping; try another one, or this one again later", change="none")
            if self._in_flight + places > self.max_in_flight:
                full = self._in_flight == self.max_in_flight
                raise ResourceExhausted(
                    f"the server already has {self._in_flight} calls, "
                    f"{'its limit' if full else f'and its limit of {self.max_in_flight} leaves no room for {places} more'}; "
                    f"try again later or raise {self.option}",
                    change="none",
                    retry_seconds=self.retries.next(),
                )
            self._in_flight += places
        self._of_thread.places = places
        try:
            yield
        finally:
            self._of_thread.places = 0
            with self._changed:
                self._in_flight -= places
                self._changed.notify_all()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """In the block, the call of this thread waits for other machines, and occupies no place. Outside of a call,
        this does nothing."""
        places = getattr(self._of_thread, "places", 0)
        self._move_aside(places)
        try:
            yield
        finally:
            self._move_aside(-places)

    def _move_aside(self, places: int) -> None:
        with self._changed:
            self._in_flight -= places
            self._aside += places

    def close(self) -> None:
        """Reject all further calls."""
        with self._changed:
            self._closed = True

    def has_ended(self) -> bool:
        """Whether further calls are rejected, and no call runs any more."""
        return self._closed and not self._in_flight and not self._aside

    def wait_idle(self, seconds: float) -> bool:
        """Block until no call runs, or until ``seconds`` have passed. Returns whether no call runs."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._in_flight and not self._aside, max(0.0, seconds))


class TokenBucket:
    """Holds up to ``most`` tokens, and gains ``rate`` a second. It is full at first. Both attributes may be replaced.
    Thread-safe."""

    def __init__(self, rate: float, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.most, self._clock = rate, most, clock
        self._lock = threading.Lock()
        self._held, self._at = most, clock()

    def add(self, tokens: float) -> None:
        """Add ``tokens``. A negative number may leave a debt."""
        with self._lock:
            self._fill()
            self._held = min(self.most, self._held + tokens)

    def take(self, tokens: float, needed: float | None = None) -> float:
        """Take ``tokens`` if ``needed`` are held (default: ``tokens``). Taking more than are held leaves a debt.

        Returns the seconds until ``needed`` are held; 0: the tokens are taken.
        """
        needed = tokens if needed is None else needed
        with self._lock:
            self._fill()
            if self._held < needed:
                return (needed - self._held) / self.rate if self.rate else math.inf
            self._held -= tokens
            return 0.0

    def _fill(self) -> None:
        now = self._clock()
        self._held, self._at = min(self.most, self._held + (now - self._at) * self.rate), now
