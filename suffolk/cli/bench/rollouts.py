"""Measure drafts from earlier answers to the same prompts, as in the epochs of reinforcement learning.

Each epoch samples several answers to every prompt. The methods differ in what they keep of the answers
so far. Ctrl-C ends it early with exit code 130. The report then covers the finished prompts, and says
so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.decode import DecodeModelOptions, DecodePromptOptions
from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.drafting import PlannerOptions
from suffolk.cli.options.setting import option, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.datastore.settings import Count

EXAMPLES = """
suffolk bench rollouts --model MODEL_FOLDER --prompts reasoning.jsonl --limit 8 --json rollouts.json
suffolk bench rollouts --model MODEL_FOLDER --prompts reasoning.jsonl --temperatures 1 0.7 --json rollouts.json
suffolk bench rollouts --model MODEL_FOLDER --earlier-model OTHER_FOLDER --prompts reasoning.jsonl --json rollouts.json"""


@dataclass(frozen=True, kw_only=True)
class Options(DecodeModelOptions, DecodePromptOptions, PlannerOptions, ReportOptions):
    samples: Count = option(8, "answers to each prompt in each epoch; they are one batch", group="prompts")
    temperatures: tuple[float, ...] = option(
        (1.0, 1.0), "temperature of each epoch; as many epochs as values", several=True, group="prompts"
    )
    earlier_model: str | None = option(
        None, "the model that writes the answers of the first epoch (default: the measured model)", metavar="MODEL"
    )
    answers: Path | None = option(
        None,
        "draft along plain answers, in counted time: they are read from this file, or sampled and added to it",
        metavar="FILE",
    )
    methods: str = option(
        "prompt-lookup,prompt trees,live store,hybrid",
        "names, separated by commas; 'arctic' needs the package arctic-inference",
        metavar="LIST",
        group="drafting",
    )


def run(options: Options) -> int:
    from suffolk.benchmarks.decode.options import DecodingOptions
    from suffolk.benchmarks.decode.report import PACKAGES
    from suffolk.benchmarks.rollouts.answers import RolloutOptions
    from suffolk.benchmarks.rollouts.measure import NOTES, measure_rollouts, rollout_panels, rollout_parts

    outcome = options.outcome("rollouts")
    settings = RolloutOptions(
        passed_on(options, DecodingOptions, drafters=()),
        options.samples,
        options.temperatures,
        options.earlier_model,
        comma_list(options.methods),
        options.answers,
    )
    results = measure_rollouts(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, rollout_parts(results), rollout_panels(results))
