"""Train a draft head on text, for a model whose weights do not change.

The corpus is text files, or JSON lines with 'messages' (formatted by the model's own chat template;
only the assistant's tokens count) or 'text'. With --regenerate the model writes the answers itself,
and heads learn best from these. Ctrl-C saves a checkpoint; the same command with --resume continues
the run, even after the process was killed. The folder appears when the head is complete:
config.json, model.safetensors, a card (README.md) and the learning curve (training.json).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.capacity.need import read_amount
from suffolk.cli.model import MODEL, DeviceOptions, load_target
from suffolk.cli.options import setting
from suffolk.cli.options.setting import Configurable, passed_on
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import REQUIRED, argument, option, rare
from suffolk.serving.decoding.drafters.training import options as limits
from suffolk.serving.decoding.drafters.training.heads import HEADS, head_maker, option_lines
from suffolk.serving.decoding.drafters.training.options import Regeneration, TrainData, TrainOptions, TrainSteps
from suffolk.serving.decoding.drafters.training.rows import find_corpus
from suffolk.serving.decoding.engine.model.model_folder import find_folder
from suffolk.serving.decoding.engine.sampling.settings import Temperature

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.model.target import Target

_EXAMPLES = """
suffolk train redrafter --model MODEL_FOLDER --corpus chats.jsonl.zst --output HEAD
suffolk train redrafter --model MODEL_FOLDER --corpus chats.jsonl.zst --output HEAD --resume
suffolk train eagle --model MODEL_FOLDER --corpus chats/ --output HEAD --regenerate --set answer_temperature=0.7 --passes 2
suffolk train eagle --model MODEL_FOLDER --corpus src/ --output HEAD --window 2048 --batch 2 --set feature_cache=200G
suffolk train redrafter --model MODEL_FOLDER --corpus src/ --output HEAD --set head_option.blocks=1
suffolk train eagle --config train.toml"""
EXAMPLES = "\n".join(
    [
        _EXAMPLES.strip(),
        "",
        "settings of heads (--set head_option.NAME=VALUE, or the table head_option):",
        *option_lines(),
    ]
)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_ANSWERS = tuple(f"answer_{each.name}" for each in fields(Regeneration))


@dataclass(frozen=True, kw_only=True)
class HeadOptions(setting.Options):
    """What to train."""

    GROUP = "head"
    kind: str = argument(REQUIRED, f"kind of head: {', '.join(HEADS)}", metavar="HEAD")
    model: str = option(REQUIRED, MODEL)
    output: Path = option(REQUIRED, "folder to make; new or empty", metavar="DIR")
    resume: bool = option(False, "continue the interrupted run for DIR")
    json: bool = option(False, "print the contents of training.json")
    head_option: Mapping[str, Any] = field(
        default_factory=dict, metadata={"help": "table of settings of the head; values are JSON", "rare": True}
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions(setting.Options):
    """What to train on."""

    GROUP = "data"
    corpus: tuple[str, ...] = option(REQUIRED, "file, folder or pattern to learn from", metavar="CORPUS", several=True)
    feature_cache: limits.CacheBytes = rare(
        0,
        "the most bytes of hidden states to keep beside DIR (with K, M, G or T, as in 200G), so "
        "that later passes need not compute them; 0 keeps none",
        metavar="BYTES",
        read=partial(read_amount, units=_UNITS),
    )


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(setting.Options):
    """How the model writes answers."""

    GROUP = "answers by the model"
    regenerate: bool = option(False, "the model writes the last answer of each conversation, and continues texts")
    answer_temperature: Temperature = rare(0.0, "temperature of the answers; 0 is greedy decoding", metavar="T")
    answer_max_new_tokens: limits.Tokens = rare(512, "longest answer, in tokens")
    answer_prompt_tokens: limits.Tokens = rare(64, "number of first tokens of a text that serve as its prompt")
    answer_slots: limits.Slots = rare(8, "answers written at once")


@dataclass(frozen=True, kw_only=True)
class Options(HeadOptions, DataOptions, TrainData, AnswerOptions, TrainSteps, DeviceOptions, Configurable):
    """All options of ``suffolk train``."""

    def train_options(self) -> TrainOptions:
        """The settings. Raises InvalidArgument if settings of answers lack --regenerate, or values contradict each other."""
        for name in () if self.regenerate else _ANSWERS:
            if name in self.given and self.given[name].origin == setting.COMMAND_LINE:
                raise InvalidArgument(
                    f"{self.given[name].label} has no effect without --regenerate; add that, or leave this out"
                )
        answers = {name.removeprefix("answer_"): getattr(self, name) for name in _ANSWERS}
        return passed_on(
            self,
            TrainOptions,
            head=self.kind,
            corpora=self.corpus,
            head_options=self.head_option,
            cache_bytes=self.feature_cache,
            regenerate=Regeneration(**answers) if self.regenerate else None,
        )


def run(options: Options) -> None:
    run_options = options.train_options()
    head_maker(run_options.head, run_options.head_options)  # raises for an unknown name before anything is read
    find_folder(options.model)
    find_corpus(run_options)

    from suffolk.build_index.progress import show_progress
    from suffolk.serving.decoding.drafters.training.run import train
    from suffolk.serving.decoding.engine.model.target_loader import silence_transformers

    def load(run_options: TrainOptions, accelerate: bool) -> Target:
        chosen = options if accelerate else replace(options, exact="auto")  # passes of training generate no text
        return load_target(run_options.model, chosen, run_options.batch * run_options.window, accelerate)

    silence_transformers()
    with show_progress() as progress:
        found = train(run_options, progress, options.resume, load)
    print(json.dumps(found) if options.json else "\n".join(_lines(found, options.output)))


def _lines(found: dict[str, Any], output: Path) -> list[str]:
    """The result as lines of text."""
    result = found["result"]
    lines = [
        f"{found['head']} head of {found['parameters']:,} parameters, {result['steps']:,} steps, {result['tokens']:,} tokens"
    ]
    if result["held_out_acceptance"] is not None:
        shares = " ".join(f"{share:.1%}" for share in result["held_out_acceptance"])
        lines.append(f"held out: loss {result['held_out_loss']:.4f}, acceptance by depth {shares}")
        lines.append(f"accepted tokens of a draft with one candidate a depth: {result['expected_tokens']:.2f}")
    return [*lines, f"wrote {output}"]
