"""Measure the throughput and memory of building a datastore."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.cli.bench.report_options import WorkdirOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.datastore.settings import Count

EXAMPLES = "suffolk bench build --tokenizer MODEL_FOLDER src/ --json build.json"


@dataclass(frozen=True, kw_only=True)
class Options(WorkdirOptions):
    corpora: tuple[str, ...] = argument(REQUIRED, "file, folder or pattern with text", metavar="CORPUS")
    tokenizer: str = option(REQUIRED, "Hugging Face folder, tokenizer.json or hub name", metavar="TOK")
    text_field: str = option("text", "field or column with the text", metavar="NAME")
    extensions: str = option(
        "", "extensions of the files to read from folders, such as .py,.md", metavar="LIST", blank=True
    )
    rounds: Count = option(1, "runs of each, in turn")
    threads: int = option(0, "processes and threads of the build and of its sort (default: one for each core)")
    sort_tokens: tuple[Count, ...] = option(
        (20_000_000, 80_000_000),
        "number of tokens to sort in the comparison with pydivsufsort, at most all; 0 skips the comparison",
        several=True,
    )
    sort_rounds: Count = option(3, "rounds of each sort")
    sort_repeats: Count = option(
        10_000_000, "number of tokens of the inputs that consist of repeats; 0 skips these inputs"
    )


def run(options: Options) -> int:
    from suffolk.benchmarks.building.measure import BuildingOptions, measure_building
    from suffolk.benchmarks.building.report import NOTES, PACKAGES, building_panels, building_parts

    outcome = options.outcome("build")
    settings = passed_on(
        options,
        BuildingOptions,
        workdir=options.folder(outcome),
        extensions=comma_list(options.extensions),
        sort_tokens=tuple(each for each in options.sort_tokens if each),
    )
    results = measure_building(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, building_parts(results), building_panels(results))
