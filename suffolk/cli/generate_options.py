"""The options of ``suffolk generate``."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from suffolk.cli.drafting import HYBRID, DrafterOptions, PlannerOptions, RetrievalOptions
from suffolk.cli.model import MODEL, DeviceOptions
from suffolk.cli.options import setting
from suffolk.cli.options.setting import Configurable
from suffolk.cli.output_file import RECORD
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Share, argument, option, rare
from suffolk.serving.decoding.drafters.registry import NONE, find, names
from suffolk.serving.decoding.engine.sampling import settings as limits
from suffolk.serving.decoding.engine.sampling.settings import VERIFICATIONS, SamplingSettings

EXAMPLES = """
suffolk generate --model MODEL_FOLDER "Write a sort function."
suffolk generate --model MODEL_FOLDER --datastore STORE --compare-plain < prompt.txt
suffolk generate --model MODEL_FOLDER --datastore STORE --explain "Write a sort function."
suffolk generate --model MODEL_FOLDER --datastore grpc://127.0.0.1:7700/STORE --temperature 0.7 --seed 1 "A poem."
suffolk generate --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER "Write a sort function."
suffolk generate --model MODEL_FOLDER --head HEAD_FOLDER --compare-plain "Write a sort function."
suffolk generate --model MODEL_FOLDER --datastore STORE --set recycle=true --set top_k=40 "Write a sort function."
suffolk generate --model MODEL_FOLDER --set record=texts.jsonl "Write a sort function."      # for 'suffolk replay'
suffolk generate --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --levels "prompt-lookup:4 > draft-model:6" "A poem."
suffolk generate --model MODEL_FOLDER --prediction old.py "Rename f to g in this file: ..."
suffolk generate --worker grpc://127.0.0.1:7710 "Write a sort function."
suffolk generate --config suffolk.toml "Write a sort function."
"""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DeviceOptions):
    """Which model generates."""

    GROUP = "model"
    model: str | None = option(None, MODEL, excludes=("worker",))
    worker: str | None = option(
        None,
        "address of a 'suffolk worker', as grpc://HOST:PORT, in place of --model",
        metavar="URL",
        excludes=("model",),
    )


@dataclass(frozen=True, kw_only=True)
class PromptOptions(setting.Options):
    """What to continue."""

    GROUP = "prompt"
    prompt: str | None = argument(None, "the prompt (default: read from stdin)", metavar="PROMPT", blank=True)
    chat: bool = rare(False, "apply the model's chat template (default if it has one)", excludes=("raw",))
    raw: bool = option(False, "continue the prompt as it is", excludes=("chat",))
    prediction: Path | None = option(
        None, "text file with all or most of the expected answer; parts that come true are generated faster"
    )


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(setting.Options):
    """How tokens are sampled, and where the text ends."""

    GROUP = "sampling"
    max_new_tokens: limits.NewTokens = option(256, "longest text, in tokens")
    temperature: limits.Temperature = option(
        0.0, "temperature of the text; 0 is greedy decoding (default: 0)", metavar="T"
    )
    seed: limits.Seed = option(0, "the same seed gives the same text, with any drafts (default: 0)")
    stop: tuple[str, ...] = option((), "end the text before TEXT; may be repeated", metavar="TEXT", blank=True)
    top_k: limits.TopK = rare(0, "sample only from the K likeliest tokens; 0 is no limit", metavar="K")
    top_p: limits.TopP = rare(
        1.0, "sample only from the likeliest tokens that have this probability together; 1 is no limit", metavar="P"
    )
    min_p: limits.MinP = rare(
        0.0, "sample only tokens of at least P times the probability of the likeliest token; 0 is no limit", metavar="P"
    )
    repetition_penalty: limits.Factor = rare(
        1.0, "a value above 1 makes tokens of prompt and text less likely; 1 has no effect", metavar="W"
    )
    presence_penalty: limits.Penalty = rare(
        0.0, "subtracted from the logit of each token that was generated before", metavar="W"
    )
    frequency_penalty: limits.Penalty = rare(
        0.0, "subtracted from a token's logit for each time that it was generated before", metavar="W"
    )
    bad_words: tuple[str, ...] = rare(
        (),
        "texts whose token sequences are never generated, with or without a space before the text",
        metavar="TEXT",
        blank=True,
    )
    ignore_eos: bool = rare(False, "do not end at the model's end-of-text tokens")
    logprobs: limits.Logprobs | None = rare(
        None, "write the log-probability of each token and of N alternatives to the file of --stats-json"
    )
    verification: str = rare(
        "match",
        "which drafted tokens are accepted. 'match': tokens that equal the target's sample, so drafts never change the text. "
        "'rejection': tokens that pass speculative sampling, for chains of redrafter and hierarchy; keeps the distribution of the "
        "text. 'typical': LOSSY, accepts all tokens that are likely enough, so the text depends on drafts",
        choices=VERIFICATIONS,
    )
    epsilon: Share | None = rare(
        None,
        "'typical' accepts tokens of probability min(epsilon, delta * exp(-entropy)) or more (default: 0.3)",
    )
    delta: Share | None = rare(None, "see epsilon (default: 0.09)")

    def sampling(self) -> SamplingSettings:
        """The settings without ``bad_words``, which need a tokenizer. Raises InvalidArgument if settings contradict each other."""
        names = {each.name for each in fields(SamplingSettings)} & {each.name for each in fields(SamplingOptions)}
        values = {name: getattr(self, name) for name in names - {"given", "bad_words"}}
        for name in ("epsilon", "delta"):
            if values[name] is None:
                del values[name]
            elif self.verification != "typical":
                raise InvalidArgument(
                    f"{name} {values[name]:g} has no effect under verification {self.verification}; leave it out, or set "
                    "verification to typical"
                )
        if any(not word.strip() for word in self.bad_words):
            raise InvalidArgument(Field("bad_words"), " is empty; name a text that must not be generated")
        return SamplingSettings(**values)


@dataclass(frozen=True, kw_only=True)
class DraftingOptions(DrafterOptions):
    """Which drafter drafts."""

    GROUP = "drafting"
    drafter: str | None = option(
        None,
        f"{', '.join((NONE, *names()))} (default: hybrid, one tree from all sources; or prompt-lookup, if no source is given)",
        choices=(NONE, *names()),
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions(setting.Options):
    """What is shown and written."""

    GROUP = "output"
    compare_plain: bool = option(False, "decode without drafts too, and compare text and speed")
    explain: bool = option(
        False,
        "show the text by source, the documents of copied passages, and a table of the sources: nodes, acceptance, share",
    )
    trace: Path | None = option(
        None,
        "write one web page (HTML) with the text by source, the draft tree of each step, and the passages of accepted drafts",
        written=True,
    )
    stats_json: Path | None = option(None, "write the report as JSON", written=True)
    colour: str = rare("auto", "colour accepted tokens by source", choices=("auto", "always", "never"))
    record: Path | None = rare(None, RECORD, written=True)


@dataclass(frozen=True, kw_only=True)
class Options(
    ModelOptions,
    PromptOptions,
    SamplingOptions,
    DraftingOptions,
    RetrievalOptions,
    PlannerOptions,
    OutputOptions,
    Configurable,
):
    """All options of ``suffolk generate``."""

    calibration: Path | None = rare(
        None, "file of how often drafts are accepted; it is read if it exists, and written at the end", group="drafting"
    )

    def drafter_name(self) -> str:
        """The drafter to run. Raises InvalidArgument if it has no source, or options of another drafter are given."""
        loaded = list(self.drafter_config().parts())
        several = "hierarchy" if loaded == ["hierarchy"] else HYBRID
        name = str(self.drafter or (several if self.datastore or loaded else "prompt-lookup"))
        unused = [each for each in loaded if name not in (each, HYBRID)]
        if unused:
            raise InvalidArgument(
                f"drafter {name} does not use the options of {unused[0]} that are given; leave one of them out"
            )
        if name != NONE and find(name).needs_option and not loaded:
            raise InvalidArgument(f"--drafter {name} needs {find(name).usage}; add it")
        return name
