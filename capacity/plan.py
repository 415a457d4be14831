"""The plan with the fewest nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from suffolk.build_index.split import MAX_SHARDS
from suffolk.capacity.need import DISK_SHARE, MEMORY_SHARE, NETWORK_SHARE, READS_SHARE, Need
from suffolk.capacity.service_costs import ServiceCosts
from suffolk.capacity.shard import ShardModel, index_bytes
from suffolk.datastore.errors import Field, InvalidArgument

THREADS = (1, 2, 4)
"""Numbers of search threads to try for a server. A chunk of CHUNK contexts occupies at most CHUNK / GRAIN threads."""
_MOST_REPLICAS = 1 << 20


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """Nodes for a need.

    Attributes:
        shard: one of its equal shards.
        replicas: nodes of each shard that carry the load. Spare nodes are added to them.
        limits: for each limit by name, the nodes that it alone requires, without spares. All limits but disk and memory are
            computed for the plan's number of shards.
    """

    shard: ShardModel
    replicas: int
    limits: dict[str, int]

    @property
    def nodes(self) -> int:
        """All nodes."""
        return self.shard.shards * (self.replicas + self.shard.need.spares)

    @property
    def binding(self) -> str:
        """The limit that requires the most nodes, the first if several do. "none" if one node is enough for each limit."""
        name = max(self.limits, key=lambda name: self.limits[name])
        return name if self.limits[name] > 1 else "none"


def best_plan(need: Need, costs: ServiceCosts) -> CapacityPlan:
    """The plan with the fewest nodes. Ties go to the fewest shards, then to the fewest search threads.

    Raises:
        InvalidArgument: no number of nodes meets the need. The message names the limit.
    """
    every = _candidates(need, costs)
    disk = _by_disk(need, costs)
    shards = [shard for shard in every if shard.shards >= max(disk, _by_memory(shard))]
    if not shards:
        raise _too_large(need, max(disk, min(map(_by_memory, every))))
    best: CapacityPlan | None = None
    for shard in shards:
        best = _better(best, shard)
    if best is None:
        raise _too_slow(need, shards)
    return best


def _candidates(need: Need, costs: ServiceCosts) -> list[ShardModel]:
    """Return the shards to try: for each number of segments in a shard the fewest shards, with each number of search threads."""
    most = min(MAX_SHARDS, need.segments)
    counts = sorted({-(-need.segments // -(-need.segments // count)) for count in range(1, most + 1)})
    threads = [count for count in THREADS if count <= need.node.cores]
    return [ShardModel(need, costs, count, each) for count in counts for each in threads]


def _better(best: CapacityPlan | None, shard: ShardModel) -> CapacityPlan | None:
    """Return the better of ``best`` and the plan with ``shard``. The latency is checked last, because this takes longest."""
    need, node = shard.need, shard.need.node
    least = {
        "processors": shard.busy_servers / (need.utilisation * shard.processes),
        "network": 8 * network_bytes(shard) / (NETWORK_SHARE * node.network),
        "disk reads": shard.calls_per_second * shard.reads_per_call / (READS_SHARE * node.reads),
    }
    if not _is_better(best, shard, max(least.values())):
        return best
    limits = {"latency": _by_latency(shard), **least}
    replicas = max(limits.values())
    if not _is_better(best, shard, replicas):
        return best
    files = {"disk": _by_disk(need, shard.costs), "memory": int(_by_memory(shard))}
    load = {name: math.ceil(shard.shards * nodes) for name, nodes in limits.items()}
    return CapacityPlan(shard, math.ceil(replicas), files | load)


def _is_better(best: CapacityPlan | None, shard: ShardModel, replicas: float) -> bool:
    if replicas == math.inf:
        return False
    return best is None or shard.shards * (math.ceil(replicas) + shard.need.spares) < best.nodes


def _by_disk(need: Need, costs: ServiceCosts) -> int:
    return math.ceil(index_bytes(need, costs) / (DISK_SHARE * need.node.disk))


def _by_memory(shard: ShardModel) -> float:
    """Least number of shards whose files fit into the memory of a node; infinite if the server processes alone do not fit."""
    free = MEMORY_SHARE * shard.need.node.memory - shard.processes * shard.costs.process_bytes
    return math.ceil(shard.shards * shard.resident_bytes / free) if free > 0 else math.inf


def _by_latency(shard: ShardModel) -> float:
    """The fewest nodes of a shard that meet the latency; infinite if no number of nodes meets it."""
    limit = shard.need.latency_limit
    if shard.latency(math.inf) > limit:
        return math.inf
    few, many = 0, 1
    while shard.latency(many) > limit:
        few, many = many, 2 * many
        if many > _MOST_REPLICAS:
            return math.inf
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if shard.latency(middle) <= limit else (middle, many)
    return many


def network_bytes(shard: ShardModel) -> float:
    """Bytes a second of all replicas of a shard, in the busier direction, including the log of appends."""
    calls = shard.calls_per_second * max(shard.sent_bytes, shard.received_bytes)
    return calls + shard.need.log_bytes


def _too_large(need: Need, least: float) -> InvalidArgument:
    if least == math.inf:
        return InvalidArgument(
            f"the servers of a node take more than its memory, {need.node.memory:,} bytes; take nodes with more memory"
        )
    most = min(MAX_SHARDS, need.segments)
    return InvalidArgument(
        f"the datastore takes {least:.0f} shards on nodes of this memory and disk, and at most {most} are possible; take larger "
        "nodes, keep a smaller share in memory, or make smaller segments"
    )


def _too_slow(need: Need, shards: list[ShardModel]) -> InvalidArgument:
    best = min(shards, key=lambda shard: shard.latency(math.inf))
    return InvalidArgument(
        Field("latency_ms"),
        f": 99 % of the steps must have their drafts within {1e3 * need.latency_limit:.3g} ms, and take at least "
        f"{1e3 * best.latency(math.inf):.3g} ms even on idle nodes, with {best.shards} shards; allow more, or lower the batch, the "
        "tokens or the share of misses",
    )


def relaxations(plan: CapacityPlan, costs: ServiceCosts) -> dict[str, int]:
    """Map the changes of the need that save nodes to the nodes that are then enough, the largest saving first."""
    found = {}
    for change, need in _changes(plan.shard.need):
        try:
            nodes = best_plan(need, costs).nodes
        except InvalidArgument:  # a change may be impossible, such as more search threads than memory allows
            continue
        if nodes < plan.nodes:
            found[change] = nodes
    return dict(sorted(found.items(), key=lambda each: each[1]))


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
