"""Measure the speed-up that predicted texts give, for several shares of changed lines.

The model edits source files. A prediction is the model's own plain answer with a share of its lines
replaced. Ctrl-C ends it early with exit code 130. The report then covers the finished prompts, and
says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.decode import DecodeModelOptions
from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.drafting import PlannerOptions
from suffolk.cli.options.setting import REQUIRED, option, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.datastore.settings import Count

EXAMPLES = """
suffolk bench prediction --model MODEL_FOLDER --files src/ --limit 8 --json prediction.json
suffolk bench prediction --model MODEL_FOLDER --files src/ --drafters prediction --shares 0 1 --json prediction.json"""


@dataclass(frozen=True, kw_only=True)
class Options(DecodeModelOptions, PlannerOptions, ReportOptions):
    files: tuple[Path, ...] = option(REQUIRED, "Python files to edit, or folders of them", metavar="PATH", several=True)
    limit: Count = option(8, "files, chosen at random")
    lines: Count = option(30, "lines of each file, from its beginning")
    max_new_tokens: Count = option(400, "longest answer, in tokens")
    shares: tuple[float, ...] = option(
        (0.0, 0.05, 0.2, 0.5, 1.0), "shares of the lines that are wrong in a prediction, each 0..1", several=True
    )
    drafters: str = option("prediction,prompt-lookup", "separated by commas", metavar="LIST")


def run(options: Options) -> int:
    from suffolk.benchmarks.decode.options import DecodingOptions
    from suffolk.benchmarks.decode.report import PACKAGES
    from suffolk.benchmarks.prediction.edits import PredictionOptions
    from suffolk.benchmarks.prediction.measure import measure_predictions
    from suffolk.benchmarks.prediction.report import NOTES, prediction_panels, prediction_parts

    outcome = options.outcome("prediction")
    drafters = comma_list(options.drafters)
    decoding = passed_on(options, DecodingOptions, prompts=(), limit=None, drafters=drafters)
    settings = PredictionOptions(decoding, options.files, options.limit, options.lines, options.shares)
    results = measure_predictions(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, prediction_parts(results), prediction_panels(results))
