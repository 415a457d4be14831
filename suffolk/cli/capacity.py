"""Plan the nodes for a datastore and a load: how many, what limits them, and what would take fewer.

The plan is computed from costs of the draft service on one core. Measure them on a node of yours with 'suffolk profile
--datastore STORE', and give the file as --profile. Without it, the costs of a named machine are used. Amounts may be
written as 1e12, 1T or 100G; units are decimal. docs/how-to/scale.md explains what is counted.

With --simulate, the plan's calls are also simulated event by event, with all nodes and with the spare nodes down, and
compared with the formulas.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from suffolk.build_index.report import count
from suffolk.capacity.bill import Bill, Building, bill_of, building_of
from suffolk.capacity.comparison import compare_plan, comparison_lines, comparison_result
from suffolk.capacity.need import Need, NeededLoad, NeededText, Node, NodeUse, amount, amount_option, size
from suffolk.capacity.plan import CapacityPlan, best_plan, network_bytes, relaxations
from suffolk.capacity.queueing import CHECKED_UTILISATION, MOST_SPREAD
from suffolk.capacity.service_costs import PUBLISHED, read_costs
from suffolk.capacity.shard import TAIL
from suffolk.cli.options import setting
from suffolk.cli.options.setting import Configurable, passed_on
from suffolk.datastore.settings import Within, option
from suffolk.datastore.text_table import Table

EXAMPLES = """
suffolk capacity --tokens 100G --workers 50 --steps-per-second 20 --batch 8
suffolk capacity --tokens 10G --workers 8 --steps-per-second 40 --batch 16 --profile costs.json --simulate
suffolk capacity --tokens 1e12 --workers 200 --steps-per-second 20 --batch 8 --latency-ms 150 --price-node-hour 4
suffolk capacity --config capacity.toml --json"""


@dataclass(frozen=True, kw_only=True)
class NodeOptions(setting.Options):
    GROUP = "a node"
    node_cores: Annotated[int, Within(1, 1024)] = option(32, "cores")
    node_memory: Annotated[int, Within(1, 10**18)] = amount_option(256 * 10**9, "bytes of memory (default: 256G)")
    node_disk: Annotated[int, Within(1, 10**18)] = amount_option(4 * 10**12, "bytes of disk (default: 4T)")
    node_network: Annotated[int, Within(1, 10**18)] = amount_option(25 * 10**9, "bits a second each way (default: 25G)")
    node_reads: Annotated[int, Within(1, 10**18)] = amount_option(100_000, "random disk reads a second (default: 100K)")


@dataclass(frozen=True, kw_only=True)
class PriceOptions(setting.Options):
    GROUP = "prices"
    price_node_hour: Annotated[float, Within(0, 1e9)] = option(0.0, "of a node for an hour", metavar="PRICE")
    price_storage_tb: Annotated[float, Within(0, 1e9)] = option(
        0.0, "of a TB in object storage for a month", metavar="PRICE"
    )
    price_network_tb: Annotated[float, Within(0, 1e9)] = option(0.0, "of a TB that is sent", metavar="PRICE")


@dataclass(frozen=True, kw_only=True)
class Options(NeededLoad, NeededText, NodeOptions, NodeUse, PriceOptions, Configurable):
    profile: Path | None = option(None, "file of 'suffolk profile --datastore' (default: costs of a named machine)")
    simulate: bool = option(False, "also simulate the calls of the plan")
    json: bool = option(False, "print the result as JSON")


def run(options: Options) -> None:
    plan = plan_of(options)
    bill = bill_of(
        plan,
        node_hour=options.price_node_hour,
        storage_tb=options.price_storage_tb,
        network_tb=options.price_network_tb,
    )
    need, costs = plan.shard.need, plan.shard.costs
    shown = plan, building_of(need, costs, plan.nodes), bill, relaxations(plan, costs)
    compared = compare_plan(plan) if options.simulate else []
    if options.json:
        print(json.dumps(plan_result(*shown) | {"simulation": comparison_result(compared)}))
    else:
        print("\n".join([*plan_lines(*shown), *(comparison_lines(compared) if compared else [])]))


def plan_of(options: Options) -> CapacityPlan:
    """The best plan for the options. Raises the errors of ``best_plan`` and ``read_costs``."""
    costs = PUBLISHED if options.profile is None else read_costs(options.profile)
    node = Node(**{each.name: getattr(options, f"node_{each.name}") for each in fields(Node)})
    return best_plan(passed_on(options, Need, node=node), costs)


def plan_result(plan: CapacityPlan, building: Building, bill: Bill, changes: dict[str, int]) -> dict[str, Any]:
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
        "fewer_nodes": [{"change": change, "nodes": nodes} for change, nodes in changes.items()],
    }


def plan_lines(plan: CapacityPlan, building: Building, bill: Bill, changes: dict[str, int]) -> list[str]:
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
        f"plan      {count(plan.nodes, 'node')}: {count(shard.shards, 'shard')} on {replicas} + {need.spares} spare nodes each",
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
        str(Table(("limit", "nodes by it alone"), list(plan.limits.items()))),
    ]
    if changes:
        lines += ["", str(Table(("fewer nodes by", "nodes"), list(changes.items())))]
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
