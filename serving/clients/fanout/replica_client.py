"""One server of a datastore: its load, its latency, and whether calls may go to it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.clients.breaker import CircuitBreaker
from suffolk.serving.clients.fanout.topology import ReplicaAddress
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.url import parse_url

LATENCY_SECONDS = 5.0
"""Time constant with which a slow call is forgotten."""
_UNKNOWN = 1e-4
"""Latency of a server before its first answer, in seconds."""
Send = Callable[[RemoteDatastore, float], Future[Any]]
"""Sends a call to a server with a deadline in seconds."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call that was sent to one server, at ``begin``."""

    replica: ReplicaClient
    future: Future[Any]
    begin: float

    def abandon(self, late: bool) -> None:
        """Cancel the call. ``late``: it took too long, which counts as a failure of its server."""
        if self.future.cancel() and late:
            self.replica.record_late(time.perf_counter() - self.begin)


@dataclass(eq=False)
class ReplicaClient:
    """A server that can be called. Thread-safe.

    It is up while its identity is known and fewer than three calls in a row have failed (``CircuitBreaker``). A server that is
    not up is ejected: it gets no calls until a probe succeeds.

    Attributes:
        calls: drafts and lookups sent since the server is known, hedges included.
        errors: calls that failed or were late. A late call had no answer at its deadline, or before a later call of another
            server.
        hedges: second calls (hedges) that were sent to this server.
        problem: why its last probe failed; empty: it succeeded.
        mismatched: whether its last answered probe showed another vocabulary or tokenizer. Such a server gets no calls.
        generation: the generation that it served at its last probe.
        in_sync: whether the server had all acknowledged changes at its last probe. If not, it is asked only if all
            others are down.
    """

    address: ReplicaAddress
    deadline: float
    calls: int = 0
    errors: int = 0
    hedges: int = 0
    problem: str = "not called yet"
    mismatched: bool = False
    generation: int = 0
    in_sync: bool = True

    def __post_init__(self) -> None:
        self._breaker = CircuitBreaker()
        self.remote = RemoteDatastore(self.address.url, parse_url(self.address.url), self.deadline, self._breaker)
        self.label = self.address.url.partition("?")[0]
        self._lock = threading.Lock()
        self._in_flight = 0
        self._latency = _UNKNOWN
        self._observed = time.perf_counter()
        self._known = False

    @property
    def is_up(self) -> bool:
        """Whether calls may go to it."""
        return self._known and not self._breaker.is_open()

    @property
    def ejections(self) -> int:
        """How often it was ejected."""
        return self._breaker.openings

    @property
    def healthy(self) -> bool:
        """Whether it is up, and its last call succeeded."""
        return self.is_up and self._breaker.healthy

    def load(self) -> float:
        """The expected seconds of one more call: calls in flight and this one, times the recent latency."""
        recent = self._latency * math.exp((self._observed - time.perf_counter()) / LATENCY_SECONDS)
        return (self._in_flight + 1) * max(_UNKNOWN, recent)

    def send(self, send: Send, deadline: float, hedge: bool = False) -> Attempt:
        """Send a call. Raises what ``send`` raises."""
        begin = time.perf_counter()
        with self._lock:
            self.calls += 1
            self.hedges += hedge
        future = send(self.remote, deadline)
        with self._lock:
            self._in_flight += 1
        future.add_done_callback(lambda done: self._end(done, time.perf_counter() - begin))
        return Attempt(self, future, begin)

    def record_late(self, seconds: float) -> None:
        """Count a call as failed because it had no answer after ``seconds``."""
        self._observe(seconds)
        self._fail()
        self._breaker.record_failure()

    def probed(self, generation: int, in_sync: bool = True) -> None:
        """Return to service: a probe was answered, and the server has the right datastore."""
        self._known, self.problem, self.mismatched = True, "", False
        self.generation, self.in_sync = generation, in_sync
        self._breaker.record_success()

    def refuse(self, problem: str, mismatched: bool) -> None:
        """Stay ejected: a probe failed, or the server has another datastore (``mismatched``)."""
        self._known, self.problem = False, problem
        self.mismatched |= mismatched

    def _end(self, done: Future[Any], seconds: float) -> None:
        """Learn from a call that ended. The client has already reported its outcome to the breaker."""
        with self._lock:
            self._in_flight -= 1
        if done.cancelled():
            return
        self._observe(seconds)
        if done.exception() is not None and not isinstance(done.exception(), InvalidArgument):
            self._fail()

    def _fail(self) -> None:
        with self._lock:
            self.errors += 1

    def _observe(self, seconds: float) -> None:
        """A slower call counts immediately, a faster call only gradually (Finagle's peak EWMA)."""
        with self._lock:
            now = time.perf_counter()
            share = math.exp((self._observed - now) / LATENCY_SECONDS)
            self._latency = max(seconds, self._latency * share + seconds * (1 - share))
            self._observed = now
