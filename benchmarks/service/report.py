"""Tables and plot of the service measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

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


def service_parts(results: dict[str, Any]) -> list[str | Table]:
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
    loads = {**{f"{clients} clients": each for clients, each in results["closed_loop"].items()}}
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


def service_panels(results: dict[str, Any]) -> list[Panel]:
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
