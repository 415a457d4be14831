"""The plan follows from its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from suffolk.build_index.options import MAX_SEGMENT_TOKENS
from suffolk.capacity.bill import building_of
from suffolk.capacity.need import Need, Node
from suffolk.capacity.plan import best_plan, relaxations
from suffolk.capacity.service_costs import PUBLISHED
from suffolk.capacity.shard import ShardModel
from suffolk.datastore.errors import InvalidArgument

NEED = Need(tokens=10**11, workers=50, steps_per_second=20, batch=8)


def test_a_small_datastore_takes_one_node_and_its_spare() -> None:
    plan = best_plan(Need(tokens=10**8, workers=1, steps_per_second=20, batch=8), PUBLISHED)
    assert (plan.nodes, plan.shard.shards, plan.replicas, plan.binding) == (2, 1, 1, "none")


def test_more_of_anything_takes_no_fewer_nodes() -> None:
    nodes = best_plan(NEED, PUBLISHED).nodes
    for more in ({"workers": 500}, {"spares": 2}):
        assert best_plan(replace(NEED, **more), PUBLISHED).nodes > nodes


@pytest.mark.parametrize(
    ("limit", "changes", "node"),
    [
        ("memory", {"latency_ms": 1000.0, "workers": 1}, {}),
        ("disk", {"latency_ms": 1000.0, "workers": 1, "in_memory": 0.1, "misses": 0.0}, {"disk": 10**11}),
        ("processors", {"latency_ms": 5000.0, "workers": 2000}, {"memory": 10**12}),
        ("network", {"latency_ms": 5000.0, "workers": 2000}, {"memory": 10**12, "network": 10**7}),
        ("disk reads", {"latency_ms": 5000.0, "workers": 100, "in_memory": 0.5}, {"reads": 1000, "memory": 10**12}),
        ("latency", {}, {}),
    ],
)
def test_each_limit_can_bind(limit: str, changes: dict[str, Any], node: dict[str, int]) -> None:
    plan = best_plan(replace(NEED, node=replace(Node(), **node), **changes), PUBLISHED)
    assert plan.binding == limit
    assert plan.limits[limit] == max(plan.limits.values())


def test_a_plan_keeps_its_limits() -> None:
    plan = best_plan(NEED, PUBLISHED)
    shard, node = plan.shard, NEED.node
    assert shard.latency(plan.replicas) <= NEED.latency_limit
    assert shard.utilisation(plan.replicas) <= NEED.utilisation
    assert shard.memory_bytes <= 0.9 * node.memory
    assert shard.disk_bytes <= 0.8 * node.disk
    fewer = plan.replicas - 1
    assert not fewer or shard.latency(fewer) > NEED.latency_limit or shard.utilisation(fewer) > NEED.utilisation


def test_relaxations_save_nodes() -> None:
    plan = best_plan(NEED, PUBLISHED)
    found = relaxations(plan, PUBLISHED)
    assert found
    assert all(nodes < plan.nodes for nodes in found.values())


def test_live_stores_search_more_segments() -> None:
    need = replace(NEED, latency_ms=100.0)
    live, still = (best_plan(replace(need, append_tokens=tokens), PUBLISHED) for tokens in (10**6, 0))
    assert live.shard.search_s > still.shard.search_s
    assert live.nodes >= still.nodes


def test_a_segment_fits_into_the_memory_of_its_builder() -> None:
    small = replace(NEED, node=Node(memory=8 * 10**9))
    assert building_of(small, PUBLISHED, 1).memory_bytes <= 0.9 * 8e9
    assert small.segments > NEED.segments


def test_a_segment_is_never_larger_than_a_build_makes() -> None:
    for memory in (10**10, 10**12, 10**15):
        need = replace(NEED, tokens=10**13, node=Node(memory=memory))
        assert need.tokens_of_segment <= MAX_SEGMENT_TOKENS
        assert need.segments * MAX_SEGMENT_TOKENS >= need.tokens
    with pytest.raises(InvalidArgument, match=f"segment_tokens is .* between 1 and {MAX_SEGMENT_TOKENS}"):
        replace(NEED, segment_tokens=MAX_SEGMENT_TOKENS + 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"latency_ms": 1.0},
            r"latency_ms: 99 % of the steps must have their drafts within 1 ms, and take at least .* ms",
        ),
        ({"tokens": 10**15}, r"the datastore takes \d+ shards on nodes of this memory and disk, and at most 64 are"),
        ({"node": Node(memory=10**6)}, "the servers of a node take more than its memory"),
        ({"tokens": 0}, "tokens is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 257}, "batch is 257"),
        ({"steps_per_second": -1.0}, "steps_per_second is -1"),
        ({"asked": 0.0}, "asked is 0"),
        ({"utilisation": 0.9}, "utilisation is 0.9; it must be above 0 and at most 0.85"),
    ],
)
def test_impossible_needs_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        best_plan(replace(NEED, **changes), PUBLISHED)


def test_a_worker_calls_one_shard_once_and_several_in_rounds() -> None:
    call = PUBLISHED.client_call_s + NEED.batch * PUBLISHED.client_context_s
    assert ShardModel(NEED, PUBLISHED, 1).client_s == pytest.approx(call)
    assert ShardModel(NEED, PUBLISHED, 5).client_s == pytest.approx(NEED.rounds * 5 * call)
