"""Measures the cost of a worker's transports. One engine is called in turn in its own process, over gRPC and over HTTP."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.decode.report import PACKAGES as DECODING_PACKAGES
from suffolk.benchmarks.decode.setup import opened_engine, target_facts
from suffolk.benchmarks.parts import keep
from suffolk.benchmarks.plot import Panel, series
from suffolk.benchmarks.processes import helper_command
from suffolk.benchmarks.worker.requests import (
    ENGINE,
    GRPC,
    TRANSPORTS,
    StreamedAnswer,
    StreamRun,
    WorkerRequests,
    generate,
    run_streams,
    send,
)
from suffolk.build_index.progress import show_part
from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.datastore.text_table import Table
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.endpoint import parse_endpoint
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.service import DecodeService

_REQUESTS_PER_STREAM = 2
_LOOPBACK = "127.0.0.1:0"
HEADERS = ("streams, drafter, transport", "tokens/s", "ratio", "least", "first token ms", "CPU ms a token", "as engine")
PACKAGES = (*DECODING_PACKAGES, "uvicorn", "starlette", "grpcio")
NOTES = (
    "tokens/s: of all streams together, prompts included, median of rounds; ratio: to calls in the engine's process; least: the "
    "worst round",
    "first token ms: from the request to its first token, median; an answer in one piece has none",
    "CPU ms a token: processor time of the process with engine and server, without the clients' process",
    "as engine: answers that equal the answers to calls in the engine's process, in the same round",
    "clients: one process with a thread and a connection for each stream, on the same machine, with Python's http.client or "
    "Suffolk's gRPC client",
)


@dataclass(frozen=True, slots=True)
class TransportRun:
    """A run of one transport with one number of streams and one drafter. ``cpu_seconds``: CPU time of the engine's process."""

    streams: int
    drafter: str
    transport: str
    run: StreamRun
    cpu_seconds: float


def measure_worker(options: DecodingOptions, streams: Sequence[int]) -> dict[str, Any]:
    """Run the same requests over every transport in turn, with every number of ``streams``; return the results by name.

    The worker has one engine. Its clients run in a separate process. The requests are all prompts, repeated until each
    stream has two. After Ctrl-C, only turns that every transport has finished count.

    Raises:
        InvalidArgument: a number of streams is below 1.
        NotFound, Unsupported: the model, datastore or prompts are missing or do not fit together.
        Internal: the process of the clients failed.
    """
    if not streams or min(streams) < 1:
        raise InvalidArgument(f"streams {list(streams)}; they must be 1 or more")
    config = ServerConfig((parse_endpoint(_LOOPBACK, "--listen"),), parse_endpoint(_LOOPBACK, "--http"), grace=0)
    with (
        opened_engine(options, max(streams), queue=max(streams), prefix_reuse=False) as opened,
        WorkerServer(config, DecodeService(opened.engine, Path(options.model).name, options.max_nodes)) as server,
    ):
        turns = _turns(server, [ids for _, ids in opened.encoded], streams, options)
        count = options.rounds * len(streams) * len(options.drafters)
        kept, stopped = keep(turns, count, options.in_all_rounds("turns"))
    runs = [run for turn in kept for run in turn]
    return {
        "stopped": stopped,
        "target": target_facts(opened.engine.target),
        "prompts_skipped": opened.skipped,
        "streams": {
            str(size): {
                drafter: _summary([run for run in runs if (run.streams, run.drafter) == (size, drafter)])
                for drafter in options.drafters
                if any((run.streams, run.drafter) == (size, drafter) for run in runs)
            }
            for size in streams
        },
    }


def _turns(
    server: WorkerServer, prompts: Sequence[list[int]], streams: Sequence[int], options: DecodingOptions
) -> Iterator[list[TransportRun]]:
    """Yield the run of every transport, for each round, number of streams and drafter. Transports alternate."""
    with tempfile.TemporaryDirectory() as folder:

        def measure(size: int, drafter: str, transport: str, texts: list[list[int]]) -> TransportRun:
            requests = _requests(server, transport, texts, size, drafter, options)
            cpu = time.process_time()
            if transport == ENGINE:
                run = run_streams(partial(generate, server.service.engine, requests), texts, size)
            else:
                run = _outside(requests, Path(folder))
            return TransportRun(size, drafter, transport, run, time.process_time() - cpu)

        for transport in TRANSPORTS:
            measure(1, options.drafters[0], transport, [prompts[0]])
        for number in range(1, options.rounds + 1):
            for turn, size in enumerate(streams):
                requests = max(len(prompts), _REQUESTS_PER_STREAM * size)
                texts = [prompts[at % len(prompts)] for at in range(requests)]
                order = TRANSPORTS if (number + turn) % 2 else TRANSPORTS[::-1]
                for drafter in options.drafters:
                    runs = [measure(size, drafter, transport, texts) for transport in order]
                    for each in runs:
                        show_part(
                            f"round {number}, {size} streams, {drafter}: {each.transport} {each.run.rate:.1f} tokens/s"
                        )
                    yield runs


def _requests(
    server: WorkerServer, transport: str, prompts: list[list[int]], size: int, drafter: str, options: DecodingOptions
) -> WorkerRequests:
    address = server.listening[0] if transport == GRPC else server.http
    return WorkerRequests(transport, str(address), prompts, size, drafter, options.max_nodes, options.sampling)


def _outside(requests: WorkerRequests, folder: Path) -> StreamRun:
    """Run the clients in a separate process. Raises Internal if it fails."""
    file = folder / "requests.json"
    file.write_text(json.dumps(asdict(requests)))
    done = subprocess.run(helper_command(send, file=str(file)), capture_output=True, text=True)
    if done.returncode:
        raise Internal(f"the clients over {requests.transport} failed: {done.stderr.strip()[-400:]}")
    found = json.loads(done.stdout)
    return StreamRun([StreamedAnswer(**each) for each in found["answers"]], found["seconds"])


def _summary(runs: Sequence[TransportRun]) -> dict[str, dict[str, Any]]:
    """Summarise the runs of each transport."""
    ways = {name: [run for run in runs if run.transport == name] for name in TRANSPORTS}
    engine = ways[ENGINE]
    return {name: _figures(found, engine) for name, found in ways.items()}


def _figures(runs: Sequence[TransportRun], engine: Sequence[TransportRun]) -> dict[str, Any]:
    ratios = [run.run.rate / other.run.rate for run, other in zip(runs, engine, strict=True)]
    answers = [each for run in runs for each in run.run.answers]
    first = [each.first for each in answers if each.first is not None]
    expected = [each.text for run in engine for each in run.run.answers]
    return {
        "tokens_per_second": median(run.run.rate for run in runs),
        "ratio": median(ratios),
        "ratio_least": min(ratios),
        "first_token_ms": 1e3 * median(first) if first else None,
        "answer_ms": 1e3 * median(each.seconds for each in answers),
        "engine_cpu_ms_per_token": 1e3 * sum(run.cpu_seconds for run in runs) / sum(each.tokens for each in answers),
        "identical": sum(each.text == text for each, text in zip(answers, expected, strict=True)),
        "requests": len(answers),
    }


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    rows = [
        (
            f"{size}: {drafter}, {transport}",
            each["tokens_per_second"],
            each["ratio"],
            each["ratio_least"],
            each["first_token_ms"],
            each["engine_cpu_ms_per_token"],
            f"{each['identical']}/{each['requests']}",
        )
        for size, drafters in results["streams"].items()
        for drafter, transports in drafters.items()
        for transport, each in transports.items()
    ]
    return [Table(HEADERS, rows)]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot the ratio and the time to the first token of every transport."""
    found = {
        f"{size}, {drafter}": transports
        for size, drafters in results["streams"].items()
        for drafter, transports in drafters.items()
    }
    labels, rows = list(found), found.values()
    remote = tuple(name for name in TRANSPORTS if name != ENGINE)
    return [
        Panel("throughput by streams and drafter", "times the engine's", labels, series(rows, remote, "ratio")),
        Panel("time to the first token", "ms", labels, series(rows, TRANSPORTS[:-1], "first_token_ms")),
    ]
