"""Simulates the calls of a plan event by event (SimPy), to check the formulas.

Workers step at a steady pace with some jitter, and ask at the beginning of a step without waiting for the answer, as with
prefetching. A call goes to a random server of each shard and ends with the last of them. A server answers one call after
another. Service times come from single contexts, which the search threads of a server share. If a node fails, its calls go
to other servers at once.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffolk.capacity.shard import GRAIN, ShardModel
from suffolk.datastore.errors import Unsupported
from suffolk.serving.store.draft_service.service import CHUNK

if TYPE_CHECKING:
    import simpy

MOST_SERVERS = 4
"""Servers of a shard that stay up in a simulation. Calls choose servers at random, so queues are independent, and a part of
the servers behaves like all."""
JITTER = 0.2
"""Standard deviation of a step's seconds, as a share of their mean."""
_DRAWN = 1 << 11
_WARM_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Simulated:
    """What happened after the warm-up. ``seconds``: of each call, to all shards; ``busy``: share of the servers' time."""

    seconds: list[float]
    duration: float
    busy: float
    retried: int

    @property
    def calls_per_second(self) -> float:
        """Answered calls."""
        return len(self.seconds) / self.duration

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the calls ended."""
        return float(np.quantile(self.seconds, share))


def simulate(shard: ShardModel, nodes: int, calls: int, seed: int = 0, failing: int = 0) -> Simulated:
    """Simulate about ``calls`` calls to ``nodes`` nodes of each shard, of which ``failing`` fail during the warm-up.

    Raises:
        Unsupported: SimPy is not installed.
    """
    try:
        import simpy
    except ImportError as error:
        raise Unsupported(
            "the simulation needs the package simpy; install it with: pip install 'suffolk[bench]'"
        ) from error
    return _Simulation(simpy.Environment(), shard, nodes, failing, random.Random(seed)).run(calls)


class _Simulation:
    def __init__(
        self, env: simpy.Environment, shard: ShardModel, nodes: int, failing: int, chooser: random.Random
    ) -> None:
        import simpy

        self.env, self.shard, self.chooser = env, shard, chooser
        up = (nodes - failing) * shard.processes
        part = min(1.0, MOST_SERVERS / up)
        self.failing = round(failing * shard.processes * part)
        count = round(up * part) + self.failing
        self.rate = shard.calls_per_second * part
        self.workers = max(1, round(shard.need.workers * part))
        self.servers = [[simpy.Resource(env) for _ in range(count)] for _ in range(shard.shards)]
        self.down = {server: env.event() for servers in self.servers for server in servers}
        self.services = draw_services(shard, np.random.default_rng(chooser.randrange(1 << 32)))
        self.begun: list[tuple[float, float]] = []
        self.busy, self.retried, self.warm = 0.0, 0, 0.0

    def run(self, calls: int) -> Simulated:
        end = calls / self.rate
        for _ in range(self.workers):
            self.env.process(self._work(self.workers / self.rate))
        self.warm = end * _WARM_SHARE
        self.env.process(self._fail(self.warm / 2))
        self.env.run(end)
        kept = [seconds for begin, seconds in self.begun if begin >= self.warm]
        busy = self.busy / (self.shard.shards * len(self.servers[0]) * (end - self.warm))
        return Simulated(kept, end - self.warm, busy, self.retried)

    def _work(self, period: float) -> Generator[Any, Any, None]:
        shape = JITTER**-2
        yield self.env.timeout(self.chooser.random() * period)
        while True:
            self.env.process(self._call())
            yield self.env.timeout(self.chooser.gammavariate(shape, period / shape))

    def _call(self) -> Generator[Any, Any, None]:
        begin = self.env.now
        yield self.env.all_of([self.env.process(self._ask(servers)) for servers in self.servers])
        self.begun.append((begin, self.env.now - begin))

    def _ask(self, servers: list[simpy.Resource]) -> Generator[Any, Any, None]:
        while True:
            server = self.chooser.choice(servers)
            down = self.down[server]
            with server.request() as turn:
                yield turn | down
                if not down.triggered:
                    service, begin = self.chooser.choice(self.services), self.env.now
                    yield self.env.timeout(service) | down
                    self.busy += max(0.0, self.env.now - max(begin, self.warm))
            if not down.triggered:
                return
            self.retried += 1

    def _fail(self, at: float) -> Generator[Any, Any, None]:
        yield self.env.timeout(at)
        for servers in self.servers:
            failed, servers[:] = servers[: self.failing], servers[self.failing :]
            for server in failed:
                self.down[server].succeed()


def draw_services(shard: ShardModel, chooser: np.random.Generator) -> list[float]:
    """Service times of calls: chunks one after another, and in a chunk each piece at the thread that is free first."""
    need, costs = shard.need, shard.costs
    shape = costs.search_spread**-2 if costs.search_spread else 1e6
    searches = chooser.gamma(shape, shard.search_s / shape, (_DRAWN, need.batch))
    fixed = costs.server_call_s + need.batch * costs.server_context_s
    chunks = range(0, need.batch, CHUNK)
    return [fixed + sum(_shared(row[start : start + CHUNK], shard.threads) for start in chunks) for row in searches]


def _shared(seconds: Any, threads: int) -> float:
    """Seconds until the threads have searched a chunk of contexts."""
    pieces = [float(seconds[start : start + GRAIN].sum()) for start in range(0, len(seconds), GRAIN)]
    free = [0.0] * threads
    for piece in pieces:
        heapq.heappush(free, heapq.heappop(free) + piece)
    return max(free)
