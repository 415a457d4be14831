"""Measures a draft service: latency, calls a second, processor time at both ends, and behaviour under overload."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.datastore_options import ServiceOptions
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.processes import family_memory
from suffolk.benchmarks.report import quantiles_us
from suffolk.benchmarks.retrieval.contexts import join_documents, sample_seen
from suffolk.benchmarks.service.load import Load, on_core, run_closed, run_open, serving
from suffolk.build_index.progress import tracked
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.text_table import Table
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.messages import columns
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.net.url import parse_url

MAX_DEPTH = 10
LOAD_HEADERS = (
    *("load", "goodput/s", "of peak", "p50", "p99", "refused", "refusal p50", "with hint", "late"),
    *("server busy", "clients busy", "grown MB"),
)
PACKAGES = ("numpy", "grpcio", "protobuf", "matplotlib")
NOTES = (
    "with two cores or more, the server has one and the clients another; with one, they share it",
    "calls one by one use Suffolk's client; loads use grpc.aio, with the largest batch a call, and do not parse replies",
    "goodput counts calls that are answered within their deadline. In a closed loop, a refused client waits 0.1 s, or as long as "
    "the server says. In the open loop, refused calls are not repeated",
    "of peak: goodput as a share of the largest goodput of a closed loop",
    "busy: processor time of a side, as a share of one core",
    "grown: memory of the server after the load, less that before it",
)


def measure_service(options: ServiceOptions) -> dict[str, Any]:
    """Run the whole measurement; return the results by name.

    Raises:
        NotFound, Corruption: the datastore is missing or damaged.
        Unavailable: the server does not start.
    """
    with open_datastore(options.store) as store:
        tokens, starts = join_documents(store)
        contexts = sample_seen(tokens, starts, 2048, options.max_match, MAX_DEPTH, options.seed).contexts
        facts = {"path": str(store.path), "tokens": store.info()["tokens"]}
    with ExitStack() as stack:
        with on_core(0):
            url, server = stack.enter_context(serving(options.store))
        apart = stack.enter_context(on_core(1))
        alone = ((str(size), _one_by_one(url, server, contexts, size, options)) for size in options.batches)
        single = dict(tracked(alone, len(options.batches), "batch sizes"))
        size = max(options.batches)
        whole = range(0, len(contexts) - size + 1, size)
        requests = [
            draft_request(contexts[start : start + size], options.max_match, options.max_nodes) for start in whole
        ]
        target, deadline = parse_url(url).target, options.deadline_ms / 1000
        run_closed(target, requests, 4, 1.0, deadline)  # warms up
        loads = (
            (str(clients), _loaded(server, partial(run_closed, target, requests, clients, options.seconds, deadline)))
            for clients in options.clients
        )
        closed = dict(tracked(loads, len(options.clients), "loads"))
        peak = max(each["goodput"] for each in closed.values())
        rate = 2 * peak
        overload = _loaded(server, lambda: run_open(target, requests, rate, options.seconds, deadline))
    for load in (*closed.values(), overload):
        load["share_of_peak"] = load["goodput"] / peak if peak else None
    return {
        "datastore": facts,
        "cores": {"own_core_for_each_side": apart},
        "one_by_one": single,
        "closed_loop": closed,
        "open_loop": overload | {"rate": rate},
    }


def _one_by_one(url: str, server: int, contexts: Sequence[Any], size: int, options: ServiceOptions) -> dict[str, Any]:
    """Measure calls one after another, with the client that drafters use."""
    with connect(url, 10.0) as remote:
        batches = [
            [contexts[(place * size + at) % len(contexts)] for at in range(size)] for place in range(options.calls)
        ]
        seconds = []
        for counted in (False, True):
            server_cpu, client_cpu = cpu_seconds(server), time.process_time()
            for batch in batches:
                begin = time.perf_counter()
                remote.draft_batch(batch, options.max_match, 1, MAX_DEPTH, options.max_nodes)
                if counted:
                    seconds.append(time.perf_counter() - begin)
        return {
            "latency": quantiles_us(seconds),
            "calls_per_second": len(seconds) / sum(seconds),
            "server_cpu_us": 1e6 * (cpu_seconds(server) - server_cpu) / len(seconds),
            "client_cpu_us": 1e6 * (time.process_time() - client_cpu) / len(seconds),
        }


def _loaded(server: int, run: Any) -> dict[str, Any]:
    memory, cpu, own_cpu = family_memory(server)[0], cpu_seconds(server), time.process_time()
    load: Load = run()
    calls = max(1, sum(load.codes.values()))
    return {
        "goodput": load.codes["OK"] / load.seconds,
        "codes": dict(load.codes),
        "answered": quantiles_us(load.answered),
        "refused": quantiles_us(load.refused),
        "refusals_with_hint": load.hinted,
        "server_cpu_us": 1e6 * (cpu_seconds(server) - cpu) / calls,
        "server_busy": (cpu_seconds(server) - cpu) / load.seconds,
        "clients_busy": (time.process_time() - own_cpu) / load.seconds,
        "grown_bytes": family_memory(server)[0] - memory,
    }


def draft_request(contexts: Sequence[Any], max_match: int, max_nodes: int) -> bytes:
    """Return the message of a call."""
    return draft_pb2.DraftRequest(
        max_match=max_match,
        max_depth=MAX_DEPTH,
        max_nodes=columns.pack_sizes([max_nodes]),
        **columns.pack_contexts([np.asarray(context, np.int32) for context in contexts], max_match),
    ).SerializeToString()


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The tables, with facts about them."""
    facts = results["datastore"]
    rows = [
        [
            size,
            each["latency"]["p50_us"],
            each["latency"]["p99_us"],
            each["calls_per_second"],
            each["server_cpu_us"],
            each["client_cpu_us"],
        ]
        for size, each in results["one_by_one"].items()
    ]
    loads = {f"{clients} clients": each for clients, each in results["closed_loop"].items()}
    loads[f"open loop, {results['open_loop']['rate']:.0f} calls/s"] = results["open_loop"]
    return [
        f"{facts['path']}: {facts['tokens']:,} tokens",
        "",
        "calls one by one, microseconds:",
        Table(("contexts", "p50", "p99", "calls/s", "server CPU", "client CPU"), rows),
        "",
        "loads, milliseconds:",
        Table(LOAD_HEADERS, [[name, *_load_row(each)] for name, each in loads.items()]),
    ]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot goodput by the number of clients."""
    closed = results["closed_loop"]
    goodput = {"goodput": [each["goodput"] for each in closed.values()]}
    return [Panel("closed loop", "answered calls a second", list(closed), goodput)]


def _load_row(load: dict[str, Any]) -> list[Any]:
    answered, refused, codes = load["answered"], load["refused"], load["codes"]
    return [
        load["goodput"],
        load["share_of_peak"],
        _ms(answered.get("p50_us")),
        _ms(answered.get("p99_us")),
        codes.get("RESOURCE_EXHAUSTED", 0),
        _ms(refused.get("p50_us")),
        load["refusals_with_hint"],
        codes.get("DEADLINE_EXCEEDED", 0),
        load["server_busy"],
        load["clients_busy"],
        load["grown_bytes"] / 1e6,
    ]


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
