"""Measure what gRPC and HTTP (streamed and whole answers) cost, compared to calls in the worker's
process.

Ctrl-C ends it early with exit code 130. The report then covers the prompts that every transport
has answered, and says so."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.cli.bench.decode import DecodeOptions
from suffolk.cli.options.setting import Assignable, option
from suffolk.datastore.settings import Count

EXAMPLES = """
suffolk bench worker --model MODEL_FOLDER --prompts prompts/ --limit 4 --drafters none --json worker.json
suffolk bench worker --model MODEL_FOLDER --datastore STORE --prompts prompts/ --streams 1 8 --drafters none,hybrid"""


@dataclass(frozen=True, kw_only=True)
class Options(DecodeOptions, Assignable):
    streams: tuple[Count, ...] = option((1, 8, 32), "requests at once", several=True, group="prompts")


def run(options: Options) -> int:
    from suffolk.benchmarks.decode.report import PACKAGES
    from suffolk.benchmarks.worker.measure import NOTES, measure_worker, worker_panels, worker_parts

    outcome, settings = options.outcome("worker"), options.decoding()
    streams = list(options.streams)
    results = measure_worker(settings, streams)
    packages = (*PACKAGES, "uvicorn", "starlette", "grpcio")
    return outcome.finish(
        settings, results, NOTES, packages, worker_parts(results), worker_panels(results), streams=streams
    )
