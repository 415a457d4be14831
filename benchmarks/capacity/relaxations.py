"""What would take fewer nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from suffolk.benchmarks.capacity.need import Need
from suffolk.benchmarks.capacity.plan import Plan, best_plan
from suffolk.benchmarks.capacity.service_costs import ServiceCosts
from suffolk.datastore.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change of the need, and the nodes that are then enough."""

    change: str
    nodes: int


def relaxations(plan: Plan, costs: ServiceCosts) -> list[Relaxation]:
    """The changes that save nodes, those that save the most first."""
    found = []
    for change, need in _changes(plan.shard.need):
        try:
            nodes = best_plan(need, costs).nodes
        except InvalidArgument:  # a change may be impossible, such as more search threads than memory allows
            continue
        if nodes < plan.nodes:
            found.append(Relaxation(change, nodes))
    return sorted(found, key=lambda each: each.nodes)


def _changes(need: Need) -> Iterator[tuple[str, Need]]:
    node = need.node
    yield "twice the latency", replace(need, latency_ms=2e3 * need.latency_limit)
    yield "half the contexts in a call", replace(need, batch=max(1, need.batch // 2))
    yield "half the steps ask", replace(need, asked=need.asked / 2)
    yield "half the tokens", replace(need, tokens=max(1, need.tokens // 2))
    if need.in_memory == 1:
        yield "half the index in memory, read without misses", replace(need, in_memory=0.5, misses=0.0)
    if need.miss_share:
        yield "half the misses", replace(need, misses=need.miss_share / 2)
    yield "twice the memory of a node", replace(need, node=replace(node, memory=2 * node.memory))
    yield "twice the disk of a node", replace(need, node=replace(node, disk=2 * node.disk))
    yield "twice the cores of a node", replace(need, node=replace(node, cores=min(1024, 2 * node.cores)))
    yield "twice the network of a node", replace(need, node=replace(node, network=2 * node.network))
    yield "twice the disk reads of a node", replace(need, node=replace(node, reads=2 * node.reads))
    if need.spares:
        yield "no spare nodes", replace(need, spares=0)
