"""Compares the formulas of ``suffolk capacity`` with real draft services on this machine.

One server has a core of its own, and clients on another core keep it busy: how many calls does it answer? Then two servers
share all cores with processes that use Suffolk's client. Batch sizes differ from the profile's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from research.command import command_parser, run_command
from suffolk.benchmarks.capacity.profile import DEADLINE, MAX_MATCH, sample_contexts, serve_command
from suffolk.benchmarks.service.load import on_core, run_closed, run_open, serving
from suffolk.benchmarks.service.measure import MAX_DEPTH, cpu_seconds, draft_request
from suffolk.capacity.need import Need
from suffolk.capacity.service_costs import ServiceCosts, read_costs
from suffolk.capacity.shard import ShardModel
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.text_table import Table
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.url import parse_url

ALONE, SHARED = (4, 16, 64), (1, 16)
"""Batch sizes of the two parts."""
CLIENTS, SERVERS, CORES = 4, 2, 2
OPEN_SHARE = 0.6
START_SECONDS = 2.0

Row = tuple[str, str, float, float]


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    costs = read_costs(args.profile)
    with open_datastore(args.store) as store:
        contexts = sample_contexts(store)
        sizes = [entry.tokens for entry in store.manifest.segments]
    shard = partial(_shard, costs, sizes)
    rows = [*_alone(args, contexts, shard), *_shared(args, contexts, shard)]
    cells = [[*row, f"{row[2] / row[3] - 1:+.0%}"] for row in rows]
    print(Table(("servers and load", "figure", "predicted", "measured", "difference"), cells))
    return 0


def _shard(costs: ServiceCosts, sizes: Sequence[int], batch: int) -> ShardModel:
    """The datastore as one shard on one core; its segments count as equally large."""
    need = Need(
        tokens=sum(sizes), workers=1, steps_per_second=1.0, batch=batch, segment_tokens=-(-sum(sizes) // len(sizes))
    )
    return ShardModel(replace(need, node=replace(need.node, cores=1)), costs, 1)


def _alone(args: argparse.Namespace, contexts: Sequence[Any], shard: partial[ShardModel]) -> Iterator[Row]:
    """One server on its own core: calls a second when it is busy all the time, and how busy it is at fewer calls."""
    with ExitStack() as stack:
        with on_core(0):
            url, server = stack.enter_context(serving(args.store, serve_command(args.store)))
        stack.enter_context(on_core(1))
        target = parse_url(url).target
        for batch in ALONE:
            requests = [draft_request(each, MAX_MATCH, args.max_nodes) for each in _batches(contexts, batch)]
            name, service = f"1, batches of {batch}", shard(batch).service.mean
            run_closed(target, requests, CLIENTS, 1.0, DEADLINE)
            load = run_closed(target, requests, CLIENTS, args.seconds, DEADLINE)
            yield name, "calls/s", 1 / service, load.codes["OK"] / load.seconds
            before = cpu_seconds(server)
            load = run_open(target, requests, OPEN_SHARE / service, args.seconds, DEADLINE)
            yield name, "server busy", OPEN_SHARE, (cpu_seconds(server) - before) / load.seconds


def _shared(args: argparse.Namespace, contexts: Sequence[Any], shard: partial[ShardModel]) -> Iterator[Row]:
    """Two servers, and two client processes of each, on all cores."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(args.store, serve_command(args.store))) for _ in range(SERVERS)]
        pool = stack.enter_context(ProcessPoolExecutor(CLIENTS, get_context("spawn")))
        list(pool.map(time.sleep, [START_SECONDS] * CLIENTS))  # starts the processes
        for batch in SHARED:
            begin = time.time() + START_SECONDS
            work = partial(_call, _batches(contexts, batch), args.max_nodes, begin, args.seconds)
            calls = [pool.submit(work, url) for url, _ in servers for _ in range(CLIENTS // SERVERS)]
            time.sleep(max(0.0, begin - time.time()))
            before = sum(cpu_seconds(server) for _, server in servers)
            time.sleep(args.seconds)
            busy = sum(cpu_seconds(server) for _, server in servers) - before
            counts, client_busy = (sum(each) for each in zip(*(call.result() for call in calls), strict=True))
            name, one = f"{SERVERS}, batches of {batch}", shard(batch)
            yield name, "calls/s", CORES / (one.service.mean + one.client_s), counts / args.seconds
            yield name, "server us a call", 1e6 * one.service.mean, 1e6 * busy / counts
            yield name, "client us a call", 1e6 * one.client_s, 1e6 * client_busy / counts


def _call(batches: list[Any], max_nodes: int, begin: float, seconds: float, url: str) -> tuple[int, float]:
    """Call one after another for so many seconds. Returns the calls and their processor seconds at the client."""
    with connect(url, DEADLINE) as remote:
        remote.draft_batch(batches[0], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
        time.sleep(max(0.0, begin - time.time()))
        count, busy = 0, time.process_time()
        while time.time() < begin + seconds:
            remote.draft_batch(batches[count % len(batches)], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
            count += 1
        return count, time.process_time() - busy


def _batches(contexts: Sequence[Any], size: int) -> list[Any]:
    return [contexts[start : start + size] for start in range(0, len(contexts) - size + 1, size)]


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("capacity_check", __doc__, "STORE --profile costs.json")
    add = parser.add_argument
    add("store", type=Path, help="a datastore's folder")
    add("--profile", type=Path, required=True, help="file of 'suffolk profile --datastore' for this datastore")
    add("--max-nodes", type=int, default=64, help="nodes of a draft (default: %(default)s)")
    add("--seconds", type=float, default=6.0, help="duration of each load (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
