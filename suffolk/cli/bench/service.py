"""Latency and throughput of a draft service, processor time at both ends, and overload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.datastore.settings import Count

EXAMPLES = "suffolk bench service STORE --json service.json"


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    calls: Count = option(500, "calls of each batch size, one after another")
    batches: tuple[Count, ...] = option((1, 32), "contexts in such a call", several=True)
    clients: tuple[Count, ...] = option((1, 4, 16, 64, 256), "clients that call at the same time", several=True)
    seconds: float = option(5.0, "duration of each load")
    deadline_ms: float = option(250.0, "deadline of a call under load", metavar="MS")
    max_nodes: Count = option(64, "nodes in a draft")


def run(options: Options) -> int:
    from suffolk.benchmarks.service.measure import ServiceOptions, measure_service
    from suffolk.benchmarks.service.report import NOTES, PACKAGES, service_panels, service_parts

    outcome = options.outcome("service")
    settings = passed_on(options, ServiceOptions)
    results = measure_service(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, service_parts(results), service_panels(results))
