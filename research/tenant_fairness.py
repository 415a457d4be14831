"""Measures the latency of one tenant of a draft service while another sends ten times the calls of its quota."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import numpy as np

from research.command import command_parser, run_command
from suffolk.benchmarks.report import make_report, quantiles_us, write_report
from suffolk.benchmarks.service.load import served
from suffolk.datastore.checks import check_range
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import ResourceExhausted, SuffolkError
from suffolk.serving.clients.breaker import CircuitBreaker
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.net.url import parse_url

DEADLINE = 5.0
WINDOWS = {"silent": 0.0, "at its quota": 1.0, "at ten times": 10.0}
"""Window -> calls of the other tenant, as a multiple of its quota."""
NOTES = (
    "windows alternate; both tenants send calls at fixed times, each from a process of its own, and latency counts from there",
    "the other tenant sends refused calls on, without a pause and without a circuit breaker",
)


def open_store(url: str) -> RemoteDatastore:
    """A client that sends on after failures."""
    return RemoteDatastore(url, parse_url(url), DEADLINE, CircuitBreaker(1 << 60))


def send(url: str, contexts: Sequence[Any], rate: Synchronized[float], counts: Any, clients: int) -> None:
    """Send ``rate`` calls a second, until it is negative; the process of the other tenant.

    ``counts``: numbers of calls that were answered, refused and failed.
    """

    def ask(client: int) -> None:
        store, due = open_store(url), time.perf_counter() + client / 1000
        store.info()
        while rate.value >= 0:
            if not rate.value:
                time.sleep(0.01)
                due = time.perf_counter()
                continue
            due += clients / rate.value
            time.sleep(max(0.0, due - time.perf_counter()))
            place = 0
            try:
                store.draft_batch(contexts)
            except ResourceExhausted:
                place = 1
            except SuffolkError:
                place = 2
            with counts.get_lock():
                counts[place] += 1
        store.close()

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def sending(url: str, contexts: Sequence[Any], clients: int) -> Iterator[tuple[Synchronized[float], Any]]:
    """Run ``send`` in a process during the block; yields its rate and its counts."""
    spawn = multiprocessing.get_context("spawn")
    rate, counts = spawn.Value("d", 0.0), spawn.Array("q", 3)
    process = spawn.Process(target=send, args=(url, contexts, rate, counts, clients))
    process.start()
    try:
        yield rate, counts
    finally:
        rate.value = -1.0
        process.join()


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Latencies of the watched tenant in each kind of window, and the answers to the other one."""
    with open_datastore(args.store) as opened:
        tokens = next(opened.documents()).tokens.astype(np.int32)
    contexts = [tokens[end - 16 : end] for end in range(16, 16 + args.batch)]
    seconds: dict[str, list[float]] = {window: [] for window in WINDOWS}
    answers: dict[str, np.ndarray[Any, Any]] = {window: np.zeros(3, np.int64) for window in WINDOWS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        access = folder / "access.toml"
        access.write_text(f"[tenant.other]\ncalls_per_second = {args.quota:g}\n")
        for tenant in ("watched", "other"):
            (folder / tenant).write_text(add_token(access, tenant, {tenant: Role.READ}))
        names = [f"{tenant}/store={args.store}" for tenant in ("watched", "other")]
        options = ("--listen", "127.0.0.1:0", "--http", "off", "--access", str(access))
        with served(args.store, (sys.executable, "-m", "suffolk", "serve", *names, *options)) as found:
            host = found.removesuffix("/store")
            urls = {tenant: f"{host}/{tenant}/store?token_file={folder / tenant}" for tenant in ("watched", "other")}
            store = open_store(urls["watched"])
            store.info()
            with sending(urls["other"], contexts, args.clients) as (rate, counts):
                for _ in range(args.rounds):
                    for window, multiple in WINDOWS.items():
                        rate.value = multiple * args.quota
                        time.sleep(1.2)  # the bucket's second at once
                        before = np.array(counts[:])
                        _watch(store, contexts, args.rate, args.window, seconds[window])
                        answers[window] += np.array(counts[:]) - before
            store.close()
    rows: dict[str, Any] = {window: quantiles_us(each) for window, each in seconds.items()}
    for window, row in rows.items():
        per_second = answers[window] / (args.rounds * args.window)
        row["other_per_s"] = dict(zip(("answered", "refused", "failed"), per_second.tolist(), strict=True))
    quiet = rows["at its quota"]["p99_us"]
    return {"windows": rows, "p99_ratio": rows["at ten times"]["p99_us"] / quiet}


def _watch(store: RemoteDatastore, contexts: Sequence[Any], rate: float, window: float, seconds: list[float]) -> None:
    begin = time.perf_counter()
    for number in range(int(rate * window)):
        due = begin + number / rate
        time.sleep(max(0.0, due - time.perf_counter()))
        store.draft_batch(contexts)
        seconds.append(time.perf_counter() - due)


def run(args: argparse.Namespace) -> int:
    for name in ("rounds", "clients", "batch"):
        check_range(f"--{name}", getattr(args, name), 1, 256)
    results = measure(args)
    for window, row in results["windows"].items():
        other = ", ".join(f"{value:.0f} {name}" for name, value in row["other_per_s"].items())
        print(
            f"{window:<13} {row['calls']:6} calls  p50 {row['p50_us']:6.0f} us  p99 {row['p99_us']:6.0f} us  other/s: {other}"
        )
    print(f"p99 at ten times the quota: {results['p99_ratio']:.2f} times that at the quota")
    if args.json:
        settings = {name: str(value) for name, value in vars(args).items()}
        write_report(make_report("tenant_fairness", 0, settings, results, NOTES, ("numpy", "grpcio")), args.json)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), run, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("tenant_fairness", __doc__, "STORE --rounds 20 --json tenant_fairness.json")
    add = parser.add_argument
    add("store", type=Path, metavar="STORE", help="folder of a datastore, which both tenants read")
    add(
        "--quota",
        type=float,
        default=50.0,
        metavar="N",
        help="calls a second of the other tenant (default: %(default)s)",
    )
    add("--clients", type=int, default=8, metavar="N", help="threads of the other tenant (default: %(default)s)")
    add(
        "--rate",
        type=float,
        default=50.0,
        metavar="N",
        help="calls a second of the watched tenant (default: %(default)s)",
    )
    add("--batch", type=int, default=8, metavar="N", help="contexts of a call (default: %(default)s)")
    add("--rounds", type=int, default=5, metavar="N", help="windows of each kind (default: %(default)s)")
    add("--window", type=float, default=3.0, metavar="SECONDS", help="length of a window (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    return parser


if __name__ == "__main__":
    sys.exit(main())
