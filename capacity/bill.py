"""Monthly quantities and costs of a plan, and the work of the build. Costs need prices from the user."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.build_index.plan import segment_bytes
from suffolk.capacity.need import Need, amount, size
from suffolk.capacity.plan import CapacityPlan
from suffolk.capacity.service_costs import ServiceCosts
from suffolk.datastore.segment import token_dtype

HOURS, SECONDS = 730, 730 * 3600
"""Hours and seconds in a month."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Quantities of a month. ``price``: None without prices."""

    node_hours: float
    core_hours: float
    memory_tb: float
    disk_tb: float
    storage_tb: float
    network_tb: float
    price: float | None

    def lines(self) -> list[str]:
        """One line of text."""
        price = "" if self.price is None else f"; price {self.price:,.0f}"
        return [
            f"month     {amount(self.node_hours)} node hours ({amount(self.core_hours)} core hours), "
            f"{self.memory_tb:.3g} TB of memory, {self.disk_tb:.3g} TB of disk, {self.storage_tb:.3g} TB in object storage, "
            f"{self.network_tb:.3g} TB sent{price}"
        ]


def bill_of(plan: CapacityPlan, node_hour: float, storage_tb: float, network_tb: float) -> Bill:
    """Compute the quantities of a plan: used memory and disk of all nodes, one copy in object storage, requests and replies.

    Args:
        node_hour, storage_tb, network_tb: prices of a node for an hour, of a TB in object storage for a month, and of a TB sent
            over the network. If all are 0, the bill has no price.
    """
    shard, nodes = plan.shard, plan.nodes
    storage = shard.disk_bytes * shard.shards / 1e12
    sent = shard.calls_per_second * shard.shards * (shard.sent_bytes + shard.received_bytes) * SECONDS / 1e12
    price = node_hour * HOURS * nodes + storage_tb * storage + network_tb * sent
    return Bill(
        node_hours=HOURS * nodes,
        core_hours=HOURS * nodes * shard.need.node.cores,
        memory_tb=nodes * shard.memory_bytes / 1e12,
        disk_tb=nodes * shard.disk_bytes / 1e12,
        storage_tb=storage,
        network_tb=sent,
        price=price if node_hour or storage_tb or network_tb else None,
    )


@dataclass(frozen=True, slots=True)
class Building:
    """Work of a build: text, core hours to read, tokenize and sort it, memory of a segment, and hours on the plan's nodes."""

    text_bytes: float
    tokenize_core_hours: float
    sort_core_hours: float
    memory_bytes: float
    hours: float

    def lines(self) -> list[str]:
        """One line of text."""
        return [
            f"build     {size(self.text_bytes)} of text: {amount(self.tokenize_core_hours)} core hours to tokenize and "
            f"{amount(self.sort_core_hours)} to sort; {size(self.memory_bytes)} of memory for a segment; "
            f"{amount(self.hours)} hours on these nodes"
        ]


def building_of(need: Need, costs: ServiceCosts, nodes: int) -> Building:
    """Compute the build's work on this many nodes, if all their cores always work. Copying is not counted."""
    text = need.tokens * costs.token_bytes
    tokenize, sort = text / costs.text_bytes / 3600, need.tokens / costs.sorted_tokens / 3600
    memory = segment_bytes(need.tokens_of_segment, token_dtype(need.vocab_size).itemsize)
    return Building(text, tokenize, sort, memory, (tokenize + sort) / (nodes * need.node.cores))
