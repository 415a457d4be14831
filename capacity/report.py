"""Shows a plan, as lines and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from suffolk.capacity.bill import Bill, Building
from suffolk.capacity.need import Need, amount, size
from suffolk.capacity.plan import CapacityPlan, Relaxation, network_bytes
from suffolk.capacity.queueing import CHECKED_UTILISATION, MOST_SPREAD
from suffolk.capacity.shard import TAIL
from suffolk.datastore.text_table import Table


def plan_result(plan: CapacityPlan, building: Building, bill: Bill, changes: list[Relaxation]) -> dict[str, Any]:
    """The plan as JSON. Sizes are bytes, times seconds."""
    shard, replicas = plan.shard, plan.replicas
    response = shard.response(replicas)
    return {
        "need": asdict(shard.need),
        "costs": asdict(shard.costs),
        "lookups_per_second": shard.need.lookups_per_second,
        "nodes": plan.nodes,
        "shards": shard.shards,
        "replicas": replicas,
        "spares": shard.need.spares,
        "binding": plan.binding,
        "limits": plan.limits,
        "segments": shard.need.segments,
        "node": {
            "processes": shard.processes,
            "search_threads": shard.threads,
            "disk_bytes": shard.disk_bytes,
            "memory_bytes": shard.memory_bytes,
            "network_bits_per_second": 8 * network_bytes(shard) / replicas,
            "disk_reads_per_second": shard.calls_per_second * shard.reads_per_call / replicas,
            "utilisation": shard.utilisation(replicas),
        },
        "call": {
            "service_s": shard.service.mean,
            "service_spread": shard.service.spread,
            "wait_s": response.wait,
            "p50_s": response.quantile(0.5, shard.shards),
            "p99_s": response.quantile(TAIL, shard.shards),
            "latency_s": shard.latency(replicas),
        },
        "worker": {"processor_s": shard.client_s, "received_bytes_per_second": _received(plan)},
        "build": asdict(building),
        "month": asdict(bill),
        "fewer_nodes": [asdict(each) for each in changes],
    }


def plan_lines(plan: CapacityPlan, building: Building, bill: Bill, changes: list[Relaxation]) -> list[str]:
    """The plan as text."""
    shard, need, costs, replicas = plan.shard, plan.shard.need, plan.shard.costs, plan.replicas
    node = need.node
    response = shard.response(replicas)
    network, reads = 8 * network_bytes(shard) / replicas, shard.calls_per_second * shard.reads_per_call / replicas
    lines = [
        f"costs     measured on {costs.machine}; {costs.datastore}",
        f"text      {amount(need.tokens)} tokens in {need.segments:,} segments, {size(shard.disk_bytes * shard.shards)}: "
        f"{shard.disk_bytes * shard.shards / need.tokens:.2f} bytes a token",
        f"load      {amount(need.drafts_per_second)} batches/s of {need.batch} contexts: "
        f"{amount(need.lookups_per_second)} lookups/s",
        f"plan      {_count(plan.nodes, 'node')}: {_count(shard.shards, 'shard')} on {replicas} + {need.spares} spare nodes each",
        f"limit     {plan.binding}",
        f"node      {node.cores} cores, {size(node.memory)} of memory, {size(node.disk)} of disk, "
        f"{amount(node.network)}bit/s, {amount(node.reads)} disk reads/s",
        f"uses      {size(shard.memory_bytes)} of memory, {size(shard.disk_bytes)} of disk, {amount(network)}bit/s, "
        f"{amount(reads)} disk reads/s; servers busy {shard.utilisation(replicas):.0%}",
        f"servers   {shard.processes} on each node, with search_threads = {shard.threads}",
        f"call      {_ms(shard.service.mean)} in a server, {_ms(response.wait)} in its queue; {shard.rounds} to each shard for "
        "a batch",
        f"step      99 % have all drafts within {_ms(shard.latency(replicas))}, of {_ms(need.latency_limit)} allowed; "
        f"{_ms(shard.client_s)} of it on a core of the worker",
        f"worker    receives {amount(8 * _received(plan))}bit/s",
        *building.lines(),
        *_append_lines(need),
        *bill.lines(),
        "",
        str(Table(("limit", "nodes by it alone"), [[name, count] for name, count in plan.limits.items()])),
    ]
    if changes:
        lines += ["", str(Table(("fewer nodes by", "nodes"), [[each.change, each.nodes] for each in changes]))]
    if shard.utilisation(replicas) > CHECKED_UTILISATION:
        lines += [
            "",
            f"note: above {CHECKED_UTILISATION:.0%} utilisation the latency is not checked; --simulate shows it",
        ]
    if shard.service.spread > MOST_SPREAD:
        lines += [
            "",
            f"note: times of calls vary by {shard.service.spread:.2f} of their mean. Above {MOST_SPREAD} the tail of the latency "
            "is not checked; --simulate shows it",
        ]
    return lines


def _append_lines(need: Need) -> list[str]:
    if not need.append_tokens:
        return []
    log = need.log_bytes
    return [
        f"appends   {amount(need.append_tokens)} tokens/s: {size(log)}/s of log on each of {need.log_copies} nodes, "
        f"{size(86400 * log * need.log_copies)} a day in all"
    ]


def _received(plan: CapacityPlan) -> float:
    """Bytes a second that a worker receives from all shards."""
    need = plan.shard.need
    return plan.shard.calls_per_second / need.workers * plan.shard.shards * plan.shard.sent_bytes


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
