"""The replicas of one shard. Chooses which replica gets a call, and when a second replica gets the same call."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import numpy as np

from suffolk.datastore.errors import InvalidArgument, SuffolkError, Unavailable
from suffolk.serving.clients.fanout.replica_client import ReplicaClient
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.admission import TokenBucket

T = TypeVar("T")
HEDGE_SHARE = 0.05
"""Second calls for each first call, in the long run."""
HEDGE_BURST = 10.0
"""The most second calls that can be saved. They are used when a server stalls, until calls avoid this server."""
_WINDOW = 256
_REFRESH = 32
"""Answers after which the percentile is computed again."""
_PERCENTILE = 95


class ReplicaSet:
    """Servers with the same text. Thread-safe.

    Attributes:
        replicas: all of them, in the order of the topology.
        budget: budget of second calls. Each first call adds HEDGE_SHARE.
        latencies: latencies of answered calls.
    """

    def __init__(self, replicas: Sequence[ReplicaClient], zone: str) -> None:
        """``zone``: the caller's zone. Its replicas are preferred while one of them is up."""
        self.replicas = tuple(replicas)
        self.budget = TokenBucket(0, HEDGE_BURST)
        self.latencies = LatencyWindow()
        self._zone = zone

    @property
    def is_up(self) -> bool:
        """Whether a replica gets calls: see ``ReplicaClient.is_up``."""
        return any(replica.is_up for replica in self.replicas)

    @property
    def healthy(self) -> bool:
        """Whether a replica is up and answers: see ``ReplicaClient.healthy``."""
        return any(replica.healthy for replica in self.replicas)

    def choose(self, tried: Collection[ReplicaClient] = ()) -> ReplicaClient | None:
        """The less loaded of two random replicas that are up and not ``tried`` (Mitzenmacher 2001); None if there is none.

        Replicas in sync come first, then replicas in the caller's zone.
        """
        up = [replica for replica in self.replicas if replica.is_up and replica not in tried]
        up = [replica for replica in up if replica.in_sync] or up
        near = [replica for replica in up if replica.address.zone == self._zone] if self._zone else up
        found = near or up
        return min(random.sample(found, min(2, len(found))), key=ReplicaClient.load, default=None)

    def unavailable(self) -> Unavailable:
        """The error of a call that no replica can take."""
        problems = "; ".join(f"{each.label}: {each.problem or 'its last calls failed'}" for each in self.replicas)
        return Unavailable(f"no server is up: {problems}; servers are probed once a second; are they running?")

    def ask_any(self, ask: Callable[[RemoteDatastore], T]) -> T:
        """The answer of the first replica that answers. Replicas that are up are asked first. Raises the last error.

        Replicas with another vocabulary or tokenizer are not asked.
        """
        error: SuffolkError = self.unavailable()
        fitting = [each for each in self.replicas if not each.mismatched]
        for replica in sorted(fitting, key=lambda each: not each.is_up):
            try:
                return ask(replica.remote)
            except InvalidArgument:
                raise
            except SuffolkError as found:
                error = found
        raise error

    def __iter__(self) -> Iterator[ReplicaClient]:
        return iter(self.replicas)


class LatencyWindow:
    """The 95th percentile of the last answers' seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = np.zeros(_WINDOW)
        self._count = 0
        self._percentile = float("inf")

    def observe(self, seconds: float) -> None:
        with self._lock:
            self._seconds[self._count % _WINDOW] = seconds
            self._count += 1
            if self._count % _REFRESH == 0:
                self._percentile = float(np.percentile(self._seconds[: self._count], _PERCENTILE))

    def hedge_delay(self, deadline: float) -> float:
        """Seconds after which a call is late: the percentile, but at most half of ``deadline``, so that a second call has time."""
        return min(self._percentile, deadline / 2)
