"""Table and plot of the worker's measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.worker.requests import ENGINE, TRANSPORTS
from suffolk.datastore.text_table import Table

HEADERS = ("streams, drafter, transport", "tokens/s", "ratio", "least", "first token ms", "CPU ms a token", "as engine")
NOTES = (
    "tokens/s: of all streams together, prompts included, median of rounds; ratio: to calls in the engine's process; least: the "
    "worst round",
    "first token ms: from the request to its first token, median; an answer in one piece has none",
    "CPU ms a token: processor time of the engine's process, with the server in it, without the clients'",
    "as engine: answers that equal those of calls in the engine's process, in the same round",
    "clients: one process with a thread and a connection for each stream, on the same machine, with Python's http.client or "
    "Suffolk's gRPC client",
)


def worker_parts(results: dict[str, Any]) -> list[str | Table]:
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


def worker_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot the ratio and the time to the first token of every transport."""
    found = {
        f"{size}, {drafter}": transports
        for size, drafters in results["streams"].items()
        for drafter, transports in drafters.items()
    }
    labels = list(found)

    def series(names: tuple[str, ...], field: str) -> dict[str, list[float | None]]:
        return {name: [each[name][field] for each in found.values()] for name in names}

    remote = tuple(name for name in TRANSPORTS if name != ENGINE)
    return [
        Panel("throughput by streams and drafter", "times the engine's", labels, series(remote, "ratio")),
        Panel("time to the first token", "ms", labels, series(TRANSPORTS[:-1], "first_token_ms")),
    ]
