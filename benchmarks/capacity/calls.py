"""Measures calls of a draft service: processor time at both ends, sizes of messages, memory of the server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.benchmarks.capacity.search import MAX_DEPTH, MAX_MATCH
from suffolk.benchmarks.processes import private_memory
from suffolk.benchmarks.service.draft_server import serving
from suffolk.benchmarks.service.load import on_core, run_closed, run_open
from suffolk.benchmarks.service.measure import cpu_seconds
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.messages import columns
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.net.url import parse_url

BATCHES = (1, 32)
CLIENTS = 4
"""Clients that keep the server busy all the time."""
LOAD_SHARE = 0.6
"""Calls a second under load, as a share of the calls that a busy server answers. Plans have this load. Idle servers wake more
threads."""
DEADLINE = 10.0


@dataclass(frozen=True, slots=True)
class CallCosts:
    """Processor seconds of a call and of a context in it, at both ends; the rest of a call's wall time; bytes of messages."""

    server_call_s: float
    server_context_s: float
    client_call_s: float
    client_context_s: float
    wait_s: float
    request_call_bytes: float
    request_context_bytes: float
    reply_context_bytes: float
    process_bytes: float


def serve_command(store: Path) -> list[str]:
    """The server that plans count with: one search thread."""
    command = [sys.executable, "-m", "suffolk", "serve", f"store={store}", "--listen", "127.0.0.1:0", "--http", "off"]
    return [*command, "--residency", "warm", "--set", "search_threads=1"]


def measure_calls(
    store: Path, contexts: Sequence[Any], max_nodes: int, seconds: float, done: Callable[[], None]
) -> CallCosts:
    """Call a server on a core of its own, if there are two. ``seconds``: of each load; ``done`` is called after each batch size."""
    with ExitStack() as stack:
        with on_core(0):
            url, server = stack.enter_context(serving(store, serve_command(store)))
        stack.enter_context(on_core(1))
        remote = stack.enter_context(connect(url, DEADLINE))
        remote.draft_batch(contexts[: BATCHES[-1]], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
        ends, sizes = [], []
        for size in BATCHES:
            batches = [contexts[start : start + size] for start in range(0, len(contexts) - size + 1, size)]
            requests = [draft_request(batch, max_nodes) for batch in batches]
            ends.append(
                (_under_load(url, server, requests, seconds), *_alone(remote, server, batches, max_nodes, seconds))
            )
            sizes.append((len(requests[0]), _reply_bytes(remote, batches, max_nodes) / size))
            done()
        memory = private_memory(server)
    few, many = BATCHES
    slopes = [(after - before) / (many - few) for before, after in zip(ends[0], ends[1], strict=True)]
    each = (sizes[1][0] - sizes[0][0]) / (many - few)
    wait = ends[0][2] - ends[0][3] - ends[0][1]
    return CallCosts(
        server_call_s=ends[0][0] - few * slopes[0],
        server_context_s=slopes[0],
        client_call_s=ends[0][1] - few * slopes[1],
        client_context_s=slopes[1],
        wait_s=max(0.0, wait),
        request_call_bytes=max(0.0, sizes[0][0] - few * each),
        request_context_bytes=each,
        reply_context_bytes=sizes[1][1],
        process_bytes=memory,
    )


def draft_request(contexts: Sequence[Any], max_nodes: int) -> bytes:
    """The message of a call."""
    return draft_pb2.DraftRequest(
        max_match=MAX_MATCH,
        max_depth=MAX_DEPTH,
        max_nodes=columns.pack_sizes([max_nodes]),
        **columns.pack_contexts([np.asarray(context, np.int32) for context in contexts], MAX_MATCH),
    ).SerializeToString()


def _under_load(url: str, server: int, requests: Sequence[bytes], seconds: float) -> float:
    """Processor seconds of a call at the server, at LOAD_SHARE of the calls that it can answer."""
    target = parse_url(url).target
    full = run_closed(target, requests, CLIENTS, seconds / 4, DEADLINE)
    begin = cpu_seconds(server)
    load = run_open(target, requests, LOAD_SHARE * full.codes["OK"] / full.seconds, seconds, DEADLINE)
    return (cpu_seconds(server) - begin) / max(1, sum(load.codes.values()))


def _alone(
    remote: Any, server: int, batches: Sequence[Any], max_nodes: int, seconds: float
) -> tuple[float, float, float]:
    """Processor seconds of a call at the client, its median wall seconds, and processor seconds at the server, one by one."""
    walls: list[float] = []
    begin, own, other = time.perf_counter(), time.process_time(), cpu_seconds(server)
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        remote.draft_batch(batches[len(walls) % len(batches)], MAX_MATCH, 1, MAX_DEPTH, max_nodes)
        walls.append(time.perf_counter() - start)
    calls = len(walls)
    return (time.process_time() - own) / calls, float(np.median(walls)), (cpu_seconds(server) - other) / calls


def _reply_bytes(remote: Any, batches: Sequence[Any], max_nodes: int) -> float:
    """Mean size of a reply."""
    replies = [
        columns.pack_trees(remote.draft_batch(batch, MAX_MATCH, 1, MAX_DEPTH, max_nodes)) for batch in batches[:64]
    ]
    return float(np.mean([reply.ByteSize() for reply in replies]))
