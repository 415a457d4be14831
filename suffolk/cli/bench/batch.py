"""Measure the engine's throughput by the number of requests at once, with and without drafts.

Ctrl-C ends it early with exit code 130. The report then covers the batch sizes that every drafter
has finished, and says so."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.cli.bench.decode import DecodeOptions
from suffolk.cli.options.setting import Assignable, option
from suffolk.datastore.settings import Count

EXAMPLES = """
suffolk bench batch --model MODEL_FOLDER --datastore STORE --prompts prompts/ --batches 1 2 4 8 16 --json batch.json
suffolk bench batch --model MODEL_FOLDER --head HEAD_FOLDER --prompts prompts/ --json batch.json
suffolk bench batch --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --prompts prompts/ --json batch.json"""


@dataclass(frozen=True, kw_only=True)
class Options(DecodeOptions, Assignable):
    batches: tuple[Count, ...] = option((1, 2, 4, 8, 16), "requests at once", several=True, group="prompts")


def run(options: Options) -> int:
    from suffolk.benchmarks.batch.measure import measure_batches
    from suffolk.benchmarks.batch.report import NOTES, batch_panels, batch_parts
    from suffolk.benchmarks.decode.report import PACKAGES

    outcome, settings = options.outcome("batch"), options.decoding()
    batches = list(options.batches)
    results = measure_batches(settings, batches)
    return outcome.finish(
        settings, results, NOTES, PACKAGES, batch_parts(results), batch_panels(results), batches=batches
    )
