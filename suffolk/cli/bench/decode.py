"""Compare each drafter with plain decoding.

Ctrl-C ends it early with exit code 130. The report then covers the prompts that every drafter has
finished, and says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.prompts import STYLES, load_prompts
from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.drafting import HYBRID, DrafterOptions, PlannerOptions
from suffolk.cli.model import MODEL, DeviceOptions
from suffolk.cli.options import setting
from suffolk.cli.options.setting import Assignable, passed_on
from suffolk.cli.options.values import comma_list
from suffolk.cli.output_file import RECORD, require_record
from suffolk.datastore.settings import REQUIRED, Count, option

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
class DecodePromptOptions(setting.Options):
    """Which prompts are answered, and how."""

    GROUP = "prompts"
    prompts: tuple[Path, ...] = option(REQUIRED, ".jsonl files, or folders of them", metavar="PATH", several=True)
    style: str = option(
        "both", "'prefill': an answer begins with the text 'prefill' of its prompt; 'chat': it does not", choices=STYLES
    )
    limit: Count | None = option(None, "number of prompts of each file, chosen at random (default: all)")
    max_new_tokens: Count = option(128, "longest answer, in tokens")
    ignore_eos: bool = option(False, "do not end at the model's end-of-text tokens")

    def require_prompts(self) -> None:
        """Raises the errors of ``load_prompts``. Commands call this before they load torch, which takes seconds."""
        load_prompts(self.prompts, self.style, self.limit, seed=0)


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
class DecodeOptions(DecodeModelOptions, DecodePromptOptions, ComparedOptions, PlannerOptions, ReportOptions):
    """What ``bench decode``, ``bench batch`` and ``bench worker`` share."""

    rounds: Count = option(1, "runs of all prompts", group="prompts")
    temperature: float = option(
        0.0, "temperature of the answers; 0 is greedy decoding (default: 0)", metavar="T", group="prompts"
    )
    top_p: float = option(1.0, "share of the probability to sample from; 1: no limit", metavar="P", group="prompts")
    slowed: float = option(
        0.0,
        "milliseconds of delay in every call of a drafter; shows that drafting stops when it costs too much",
        metavar="MS",
        group="drafting",
    )

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
            slowed_ms=self.slowed,
        )


@dataclass(frozen=True, kw_only=True)
class Options(DecodeOptions, Assignable):
    transformers: bool = option(
        False,
        "also run transformers' generate: plainly, with its prompt lookup, and with suffolk.generate as the loop, which "
        "drafts from the first datastore",
        group="compared",
    )
    assistant: str | None = option(
        None,
        "also run transformers' generate, plainly and assisted by this model",
        metavar="MODEL",
        group="compared",
    )
    control: bool = option(False, "run plain decoding twice, to show the noise", group="compared")
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
