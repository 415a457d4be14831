"""Compare each drafter with plain decoding.

Ctrl-C ends it early with exit code 130. The report then covers the prompts that every drafter has
finished, and says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from suffolk.benchmarks.decode.options import AnsweredPrompts, DecodingOptions, OtherMethods, SampledRounds
from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.drafting import HYBRID, DrafterOptions, PlannerOptions
from suffolk.cli.model import MODEL, DeviceOptions
from suffolk.cli.options.setting import Assignable, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.cli.output_file import RECORD, require_record
from suffolk.datastore.settings import REQUIRED, option

EXAMPLES = """
suffolk bench decode --model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 10 --json decode.json
suffolk bench decode --model MODEL_FOLDER --datastore STORE --prompts prompts/ --report decode.html
suffolk bench decode --model MODEL_FOLDER --head HEAD_FOLDER --prompts prompts/ --json decode.json
suffolk bench decode --model MODEL_FOLDER --prompts prompts/ --record texts.jsonl --json decode.json
suffolk bench decode --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --prompts prompts/ --json decode.json"""


@dataclass(frozen=True, kw_only=True)
class DecodeModelOptions(DeviceOptions):
    """What is measured."""

    GROUP = "model"
    model: str = option(REQUIRED, MODEL)


@dataclass(frozen=True, kw_only=True)
class ComparedOptions(DrafterOptions):
    """Which drafters are compared. Token recycling is left out, because it would know the answers of earlier rounds."""

    WITHOUT = ("token-recycling",)
    drafters: str | None = option(
        None,
        "names, separated by commas (default: all that can run); 'useless' drafts wrong tokens only; with bench decode, "
        "'recorded' drafts the answers of plain decoding, which no drafter can beat",
        metavar="LIST",
    )


@dataclass(frozen=True, kw_only=True)
class DecodeOptions(DecodeModelOptions, AnsweredPrompts, ComparedOptions, PlannerOptions, ReportOptions, SampledRounds):
    """What ``bench decode``, ``bench batch`` and ``bench worker`` share."""

    def decoding(self) -> DecodingOptions:
        """The settings of the measurement. Raises InvalidArgument if they contradict each other."""
        models = self.drafter_config()
        found = [*(["datastore"] if self.datastore else []), *models.parts()]
        possible = ",".join(["prompt-lookup", *found, *([HYBRID] if found else [])])
        return passed_on(
            self,
            DecodingOptions,
            datastores=self.datastore,
            models=models,
            drafters=comma_list(self.drafters or possible),
        )


@dataclass(frozen=True, kw_only=True)
class Options(DecodeOptions, Assignable, OtherMethods):
    record: Path | None = option(None, RECORD, group="report", written=True)


def run(options: Options) -> int:
    outcome = options.outcome("decode")
    require_record(options.record)
    options.require_prompts()

    from suffolk.benchmarks.decode import report
    from suffolk.benchmarks.decode.measure import measure_decoding

    run_options = replace(options.decoding(), transformers=options.transformers or options.assistant is not None)
    results = measure_decoding(run_options)
    return outcome.finish(run_options, results, report, report.decoding_notes(results))
