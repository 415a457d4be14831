"""Compares the formulas of a plan with a simulation of its calls."""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from suffolk.build_index.progress import tracked
from suffolk.capacity.plan import CapacityPlan
from suffolk.capacity.queueing import CHECKED_UTILISATION, MOST_SPREAD
from suffolk.capacity.shard import GRAIN, TAIL, ShardModel
from suffolk.datastore.errors import Unsupported
from suffolk.datastore.text_table import Table
from suffolk.serving.store.draft_service.service import CHUNK

if TYPE_CHECKING:
    import simpy


MOST_SERVERS = 4
"""The most servers of a shard that stay up in a simulation.

Calls choose servers at random, so queues are independent. A few servers then behave like all.
"""
JITTER = 0.2
"""Standard deviation of a step's seconds, as a share of their mean."""
_DRAWN = 1 << 11
_WARM_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Simulated:
    """Results of a simulation after the warm-up.

    ``seconds``: of each call to all shards. ``busy``: share of the time for which servers work. ``retried``: number of calls to
    failed servers, which were sent again; the warm-up counts too.
    """

    seconds: list[float]
    duration: float
    busy: float
    retried: int

    @property
    def calls_per_second(self) -> float:
        """Answered calls a second."""
        return len(self.seconds) / self.duration

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the calls ended."""
        return float(np.quantile(self.seconds, share))


def simulate(shard: ShardModel, nodes: int, calls: int, seed: int = 0, failing: int = 0) -> Simulated:
    """Simulate about ``calls`` calls to ``nodes`` nodes of each shard. ``failing`` of the nodes fail during the warm-up.

    Raises:
        Unsupported: SimPy is not installed.
    """
    return _Simulation(shard, nodes, failing, random.Random(seed)).run(calls)


class _Simulation:
    def __init__(self, shard: ShardModel, nodes: int, failing: int, chooser: random.Random) -> None:
        try:
            import simpy
        except ImportError as error:
            raise Unsupported(
                "the simulation needs the package simpy; install it with: pip install 'suffolk[bench]'"
            ) from error
        self.env, self.shard, self.chooser = simpy.Environment(), shard, chooser
        up = (nodes - failing) * shard.processes
        part = min(1.0, MOST_SERVERS / up)
        self.failing = round(failing * shard.processes * part)
        count = round(up * part) + self.failing
        self.rate = shard.calls_per_second * part
        self.workers = max(1, round(shard.need.workers * part))
        self.servers = [[simpy.Resource(self.env) for _ in range(count)] for _ in range(shard.shards)]
        self.down = {server: self.env.event() for servers in self.servers for server in servers}
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
    """Sample service times of calls. Chunks of CHUNK contexts run in turn. In one, a free thread takes the next GRAIN."""
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


CALLS, LEAST_CALLS = 20_000, 2_000
"""Number of simulated calls to single shards, and the least number of calls to all shards."""
AGREEMENT = 0.2


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure, from the formulas and from the simulation. ``nodes``: which nodes are up."""

    nodes: str
    figure: str
    formula: float
    simulated: float

    @property
    def difference(self) -> float:
        """The formula's figure minus the simulation's, as a share of the simulation's."""
        return self.formula / self.simulated - 1


def compare_plan(plan: CapacityPlan) -> list[Compared]:
    """Simulate the plan with all nodes, and with the spares down.

    Raises:
        Unsupported: SimPy is not installed.
    """
    spares = plan.shard.need.spares
    states = {"all nodes": 0} | ({f"{spares} of each shard down": spares} if spares else {})
    every = plan.replicas + spares
    parts = (compare_shard(plan.shard, every, failing, name) for name, failing in states.items())
    return [each for part in tracked(parts, len(states), "simulations") for each in part]


def compare_shard(shard: ShardModel, nodes: int, failing: int = 0, name: str = "") -> list[Compared]:
    """Compare utilisation, calls a second, and seconds of a call to all shards. ``failing`` of the ``nodes`` nodes fail."""
    calls = max(LEAST_CALLS, CALLS // shard.shards)
    simulated = simulate(shard, nodes, calls, failing=failing)
    up = nodes - failing
    response = shard.response(up)
    part = min(1.0, MOST_SERVERS / (up * shard.processes))
    figures = {
        "utilisation": (shard.utilisation(up), simulated.busy),
        "calls/s": (shard.calls_per_second * part, simulated.calls_per_second),
        "p50 s": (response.quantile(0.5, shard.shards), simulated.quantile(0.5)),
        "p99 s": (response.quantile(TAIL, shard.shards), simulated.quantile(TAIL)),
    }
    return [Compared(name, figure, *pair) for figure, pair in figures.items()]


def comparison_result(rows: list[Compared]) -> list[dict[str, Any]]:
    """The comparison as JSON."""
    return [asdict(row) | {"difference": row.difference} for row in rows]


def comparison_lines(rows: list[Compared]) -> list[str]:
    """The comparison as text. It names figures that differ by more than AGREEMENT."""
    cells = [[row.nodes, row.figure, row.formula, row.simulated, f"{row.difference:+.0%}"] for row in rows]
    lines = ["", str(Table(("simulated with", "figure", "formula", "simulation", "difference"), cells))]
    far = [row for row in rows if abs(row.difference) > AGREEMENT]
    if far:
        lines += [
            "",
            f"note: {len(far)} figures differ by more than {AGREEMENT:.0%}. The formulas were checked up to "
            f"{CHECKED_UTILISATION:.0%} utilisation and a spread of {MOST_SPREAD}; with many shards they are upper bounds",
        ]
    return lines
