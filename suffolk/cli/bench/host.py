"""Measure the host's processor time in a step. It needs no model and no datastore.

Passes are not computed; the drafting policy is told a time for each. The datastore holds Python's standard library.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.options.setting import option, passed_on
from suffolk.datastore.settings import Count

EXAMPLES = """
suffolk bench host --json host.json
suffolk bench host --requests 1 64 --drafters hybrid --temperature 0.7
suffolk bench host --costs costs.json --rounds 10"""


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions):
    requests: tuple[Count, ...] = option((1, 8, 64), "requests at once", several=True)
    drafters: tuple[str, ...] = option(
        ("plain", "hybrid"),
        "plain decoding, or drafters to measure",
        choices=("plain", "prompt-lookup", "datastore", "hybrid"),
        several=True,
    )
    tokens: Count = option(128, "tokens of each answer")
    prompt: Count = option(256, "tokens of each prompt")
    temperature: float = option(0.0, "sampling temperature; 0: greedy")
    costs: Path | None = option(
        None,
        "times of passes that the policy is told, stored by 'suffolk profile' (default: 70 ms a pass)",
        metavar="FILE",
    )
    rounds: Count = option(3, "batches of requests")


def run(options: Options) -> int:
    from suffolk.benchmarks.host.measure import NOTES, PACKAGES, HostOptions, host_panels, host_parts, measure_host

    outcome, settings = options.outcome("host"), passed_on(options, HostOptions)
    results = measure_host(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, host_parts(results), host_panels(results))
