"""Latency of drafts from one server, from replicas of which one is slow at times, and from shards."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from research.command import command_parser, run_command
from research.delayed_server import delayed_server
from suffolk.benchmarks.report import make_report, quantiles_us, write_report
from suffolk.benchmarks.service.load import served
from suffolk.build_index.split import split
from suffolk.datastore.checks import check_range
from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.manifest import read_manifest
from suffolk.datastore.retriever import Retriever
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.net.admission import TokenBucket
from suffolk.serving.open_store import connect_any

DEADLINE = 5.0
SLOW_MS, SLOW_SHARE = 20.0, 0.05
LENGTHS = (16, 4, 3, 2, 1)
"""Endings of a context that a drafter looks up in one call."""
NOTES = (
    "one caller; a call looks up five endings of one context, of 16, 4, 3, 2 and 1 tokens, as a drafter does",
    f"the slow replica waits {SLOW_MS:g} ms in {100 * SLOW_SHARE:g} % of its calls; without hedging, its calls are waited for",
    "the servers, and the caller, share the processors of one machine",
    "shards have the segments of the datastore; calls to them are up to three rounds",
)


def contexts_of(store: Datastore, corpus: Path, count: int, seed: int) -> list[list[Any]]:
    """``count`` batches of endings, from text that the datastore may not have."""
    files = sorted(corpus.rglob("*.py"))
    ids = np.array(list(chain.from_iterable(store.encode(file.read_text()) for file in files[:60])), np.int32)
    ends = np.random.default_rng(seed).integers(LENGTHS[0], len(ids), count)
    return [[ids[end - length : end] for length in LENGTHS] for end in ends]


@contextmanager
def several(stores: Sequence[Path], mark: str, slow: int = 0) -> Iterator[str]:
    """Servers of ``stores``, the last ``slow`` of them slow at times, as one address."""
    with ExitStack() as stack:
        hosts = []
        for number, store in enumerate(stores):
            command = delayed_server(store, SLOW_MS, SLOW_SHARE) if number >= len(stores) - slow else []
            hosts.append(stack.enter_context(served(store, command)).removeprefix("grpc://").removesuffix("/store"))
        yield f"grpc://{mark.join(hosts)}/store"


def clock(store: Retriever, batches: Sequence[Any], nodes: int) -> list[float]:
    """Seconds of each call, after the first tenth of them."""
    seconds = []
    for contexts in batches:
        begin = time.perf_counter()
        store.find_drafts(ContextQuery(contexts, max_nodes=nodes))
        seconds.append(time.perf_counter() - begin)
    return seconds[len(seconds) // 10 :]


def measure(address: str, batches: Sequence[Any], nodes: int, hedges: bool = True) -> dict[str, Any]:
    """Latency of calls to ``address``, and the counts of its servers."""
    with connect_any(address, DEADLINE) as store:
        if not isinstance(store, FanoutDatastore):
            return dict(quantiles_us(clock(store, batches, nodes)))
        if not hedges:
            for shard in store.servers.shards:
                shard.budget = TokenBucket(0, 0)
        found: dict[str, Any] = dict(quantiles_us(clock(store, batches, nodes)))
        replicas = [replica for shard in store.servers.shards for replica in shard]
        found["calls_sent"] = [replica.calls for replica in replicas]
        found["hedges"] = sum(replica.hedges for replica in replicas)
        found["ejections"] = sum(replica.ejections for replica in replicas)
        return found


def compare(store: Path, batches: Sequence[Any], nodes: int) -> dict[str, Any]:
    """All rows of one datastore."""
    rows: dict[str, Any] = {}
    with served(store) as url:
        rows["one server"] = measure(url, batches, nodes)
    with several([store, store], ",") as address:
        rows["two replicas"] = measure(address, batches, nodes)
    for hedges in (True, False):
        with several([store, store], ",", slow=1) as address:
            name = f"two replicas, one slow at times, {'with' if hedges else 'without'} hedging"
            rows[name] = measure(address, batches, nodes, hedges)
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        for shards in (2, 4):
            if len(read_manifest(store).segments) < shards:
                continue
            parts = [Path(report.path) for report in split(store, Path(folder) / str(shards), shards)]
            with several(parts, "+") as address:
                rows[f"{shards} shards"] = measure(address, batches, nodes)
    return rows


def exactness(store: Path, batches: Sequence[Any], nodes: int) -> dict[str, int]:
    """How many drafts of two shards equal the drafts of the whole datastore."""
    equal = partial = drafts = 0
    with tempfile.TemporaryDirectory(dir=store.parent) as folder, open_datastore(store) as whole:
        parts = [Path(report.path) for report in split(store, Path(folder) / "parts", 2)]
        with several(parts, "+") as address, connect_any(address, DEADLINE) as shards:
            for contexts in batches:
                query = ContextQuery(contexts, max_nodes=nodes)
                for actual, expected in zip(shards.find_drafts(query), whole.find_drafts(query), strict=True):
                    drafts += 1
                    partial += actual.partial
                    equal += all(
                        np.array_equal(getattr(actual, field), getattr(expected, field))
                        for field in ("tokens", "parents", "counts", "scores")
                    )
    return {"drafts": drafts, "equal": equal, "partial": partial}


def run(args: argparse.Namespace) -> int:
    check_range("--calls", args.calls, 10, 100_000)
    with open_datastore(args.store) as store:
        batches = contexts_of(store, args.corpus, args.calls, args.seed)
    results: dict[str, Any] = {"rows": compare(args.store, batches, args.nodes)}
    results["exactness"] = exactness(args.store, batches[: args.calls // 10], args.nodes)
    for name, row in results["rows"].items():
        print(
            f"{name:<52} p50 {row['p50_us'] / 1e3:6.2f} ms  p99 {row['p99_us'] / 1e3:6.2f} ms  {row.get('hedges', 0)} hedges"
        )
    print(
        "of {drafts} drafts from two shards {equal} equal one server's drafts, {partial} are partial".format(
            **results["exactness"]
        )
    )
    if args.json:
        settings = {name: str(value) for name, value in vars(args).items()}
        write_report(make_report("fan_out", args.seed, settings, results, NOTES, ("numpy", "grpcio")), args.json)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("fan_out", __doc__, "STORE --corpus serving/ --json fan_out.json")
    add = parser.add_argument
    add("store", type=Path, metavar="STORE", help="folder of a datastore with four segments or more")
    add(
        "--corpus",
        type=Path,
        default=Path("serving"),
        help="folder of Python files for contexts (default: %(default)s)",
    )
    add("--calls", type=int, default=2000, metavar="N", help="calls of each row (default: %(default)s)")
    add("--nodes", type=int, default=64, metavar="N", help="nodes of a draft (default: %(default)s)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the contexts (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
