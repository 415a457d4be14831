"""Sends a call to one replica, and to further replicas if it fails or is late. The first answer counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

from suffolk.datastore.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ResourceExhausted,
    SuffolkError,
)
from suffolk.serving.clients.fanout.replica_client import Attempt, ReplicaClient, Send
from suffolk.serving.clients.fanout.replica_set import HEDGE_SHARE, ReplicaSet


class HedgedCall:
    """One call to a replica set. Not thread-safe.

    A failed call is sent to the next replica immediately; after ResourceExhausted, only within ``ReplicaSet.budget``. A late call
    is hedged: a second replica gets it too, within the same budget.

    Attributes:
        attempts: the calls in flight.
        winner: the replica that answered first; None while there is no answer.
        answer: its answer.
        error: why there is no answer; None if there is one.
    """

    def __init__(self, replicas: ReplicaSet, send: Send, deadline: float, first: ReplicaClient | None = None) -> None:
        """Send the call.

        Args:
            deadline: seconds until the call ends.
            first: the replica to call first, if it is up; None: the one that ``ReplicaSet.choose`` returns.

        Raises:
            InvalidArgument: the call is malformed.
        """
        self._replicas, self._send = replicas, send
        self._begin = time.perf_counter()
        self._end = self._begin + deadline
        self._hedge_time = self._begin + replicas.latencies.hedge_delay(deadline)
        self.attempts: list[Attempt] = []
        self._tried: list[ReplicaClient] = []
        self.winner: ReplicaClient | None = None
        self.answer: Any = None
        self.error: SuffolkError | None = None
        replicas.budget.add(HEDGE_SHARE)
        self._send_next(first)

    @property
    def ended(self) -> bool:
        return self.winner is not None or not self.attempts

    @property
    def next_time(self) -> float:
        """When the next step is due if no answer comes: the time of the hedge, or the end."""
        return min(self._hedge_time, self._end)

    def advance(self) -> None:
        """Process the answers and errors that have arrived, and send calls that are due. Raises InvalidArgument: the call is
        malformed."""
        for attempt in [each for each in self.attempts if each.future.done()]:
            self.attempts.remove(attempt)
            self._take(attempt)
            if self.winner is not None:
                return
        now = time.perf_counter()
        if self.attempts and now >= self._end:
            self.stop()
        elif self.attempts and now >= self._hedge_time:
            self._hedge_time = self._end
            if self._replicas.choose(self._tried) is not None and self._replicas.budget.take(1) == 0:
                self._send_next(hedge=True)

    def stop(self) -> None:
        """End the call: no answer came in time."""
        for attempt in self.attempts:
            attempt.abandon(late=True)
        self.attempts = []
        self.error = self._late()

    def _late(self) -> DeadlineExceeded:
        tried = ", ".join(replica.label for replica in self._tried) or "no server called"
        return DeadlineExceeded(
            f"{tried}: no answer within {round(1000 * (self._end - self._begin), 1):g} ms, the deadline; if that is too short, add "
            "?deadline_ms= to the address"
        )

    def _take(self, attempt: Attempt) -> None:
        error = attempt.future.exception()
        if error is None:
            self.winner, self.answer, self.error = attempt.replica, attempt.future.result(), None
            self._replicas.latencies.observe(time.perf_counter() - self._begin)
            for other in self.attempts:
                other.abandon(late=other.begin < attempt.begin)
        elif not isinstance(error, SuffolkError) or isinstance(error, InvalidArgument):
            raise error
        else:
            self.error = error
            if not isinstance(error, ResourceExhausted) or self._replicas.budget.take(1) == 0:
                self._send_next()

    def _send_next(self, first: ReplicaClient | None = None, hedge: bool = False) -> None:
        """Send the call to the next replica. If it cannot be sent there, try the replica after that."""
        while (left := self._end - time.perf_counter()) > 0:
            replica = first if first is not None and first.is_up else self._replicas.choose(self._tried)
            first = None
            if replica is None:
                self.error = self.error or self._replicas.unavailable()
                return
            self._tried.append(replica)
            try:
                self.attempts.append(replica.send(self._send, left, hedge))
            except InvalidArgument:
                raise
            except SuffolkError as error:
                self.error = error
            else:
                return
        self.error = self.error or self._late()


def run_calls(calls: Sequence[HedgedCall]) -> None:
    """Wait until all calls have ended. Raises InvalidArgument: a call is malformed."""
    while running := [call for call in calls if not call.ended]:
        futures = [attempt.future for call in running for attempt in call.attempts]
        due = min(call.next_time for call in running)
        wait(futures, max(0.0, due - time.perf_counter()), FIRST_COMPLETED)
        for call in running:
            call.advance()
