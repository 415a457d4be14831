"""Compares the formulas of a plan with a simulation of its calls."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from suffolk.build_index.progress import tracked
from suffolk.capacity.plan import CapacityPlan
from suffolk.capacity.queueing import CHECKED_UTILISATION, MOST_SPREAD
from suffolk.capacity.shard import TAIL, ShardModel
from suffolk.capacity.simulation import MOST_SERVERS, simulate
from suffolk.datastore.text_table import Table

CALLS, LEAST_CALLS = 20_000, 2_000
"""Simulated calls to single shards; at least LEAST_CALLS calls to all shards."""
AGREEMENT = 0.2


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of the formulas and of the simulation. ``nodes``: which nodes are up."""

    nodes: str
    figure: str
    formula: float
    simulated: float

    @property
    def difference(self) -> float:
        """The difference of the formula, as a share of the simulation."""
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
    """Compare utilisation, calls a second and seconds of a call to all shards, at this many nodes, of which some fail."""
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
