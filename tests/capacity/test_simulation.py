"""The formulas agree with a simulation within 20 %."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suffolk.capacity.comparison import AGREEMENT, compare_shard, simulate
from suffolk.capacity.need import Need, Node
from suffolk.capacity.service_costs import PUBLISHED
from suffolk.capacity.shard import ShardModel

pytest.importorskip("simpy")
NODES = 2


def busy_shard(utilisation: float, batch: int, shards: int = 1, threads: int = 1, spread: float = 2.0) -> ShardModel:
    """A shard of 100 G tokens whose servers on two nodes are busy for this share of the time."""
    need = Need(tokens=10**11, workers=1000, steps_per_second=1.0, batch=batch, rounds=1, node=Node(cores=8))
    shard = ShardModel(need, replace(PUBLISHED, search_spread=spread), shards, threads)
    rate = utilisation * NODES * shard.processes / shard.service.mean
    return replace(shard, need=replace(need, steps_per_second=rate / need.workers))


@pytest.mark.parametrize("utilisation", [0.3, 0.6])
@pytest.mark.parametrize(
    ("batch", "shards", "threads", "spread"),
    [(1, 1, 1, 1.0), (8, 1, 1, 2.0), (32, 1, 2, 3.0), (64, 1, 4, 2.0), (8, 8, 1, 2.0)],
)
def test_formulas_and_simulation_agree(
    utilisation: float, batch: int, shards: int, threads: int, spread: float
) -> None:
    for row in compare_shard(busy_shard(utilisation, batch, shards, threads, spread), NODES):
        assert abs(row.difference) < AGREEMENT, row


def test_a_failed_node_leaves_its_load_to_the_other() -> None:
    shard = busy_shard(0.3, 8)
    rows = {row.figure: row for row in compare_shard(shard, NODES, failing=1)}
    assert rows["utilisation"].simulated == pytest.approx(0.6, abs=0.05)
    assert abs(rows["p99 s"].difference) < AGREEMENT
    assert any(simulate(shard, NODES, 100, seed, failing=1).retried for seed in range(5))


def test_an_overloaded_server_is_busy_all_the_time() -> None:
    found = simulate(busy_shard(1.5, 8), NODES, 2000)
    assert found.busy > 0.95
    assert found.quantile(0.99) > 10 * busy_shard(1.5, 8).service.mean
