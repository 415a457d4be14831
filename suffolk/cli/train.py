"""Train a draft head on text, behind a model that stays as it is.

The corpus is text files, or JSON lines with 'messages' (which go through the model's own chat template; only the assistant's tokens
count) or 'text'. With --regenerate the model writes the answers itself, which a head learns best from. Ctrl-C saves a checkpoint;
the same command with --resume goes on, also after a kill. The folder appears when the head is whole: config.json,
model.safetensors, a card (README.md) and the learning curve (training.json).

examples:
  suffolk train redrafter --model MODEL_FOLDER --corpus chats.jsonl.zst --output HEAD
  suffolk train redrafter --model MODEL_FOLDER --corpus chats.jsonl.zst --output HEAD --resume
  suffolk train eagle --model MODEL_FOLDER --corpus chats/ --output HEAD --regenerate --temperature 0.7 --passes 2
  suffolk train eagle --model MODEL_FOLDER --corpus src/ --output HEAD --window 2048 --batch 2 --accumulate 8 --cache 200G
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.cli.filled import filled, filled_path
from suffolk.cli.model_options import (
    add_device_options,
    load_target,
    require_models,
    require_threads,
    silence_transformers,
)
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.training.head_options import HEAD_OPTIONS, option_lines, require_known
from suffolk.serving.drafters.training.options import Regeneration, TrainOptions

if TYPE_CHECKING:
    from suffolk.serving.engine.model.target import Target

_DEFAULTS = {name: field.default for name, field in TrainOptions.__dataclass_fields__.items()}
_ANSWERS = {name: field.default for name, field in Regeneration.__dataclass_fields__.items()}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk train``."""
    parser.epilog = "\n  ".join(["settings of heads (--head-option NAME=VALUE):", *option_lines()])
    parser.add_argument("head", metavar="NAME", help=f"kind of head: {', '.join(HEAD_OPTIONS)}")
    parser.add_argument(
        "--model", type=filled, required=True, help="model folder in the Hugging Face layout, or hub name"
    )
    parser.add_argument(
        "--corpus",
        dest="corpora",
        type=filled,
        required=True,
        nargs="+",
        metavar="CORPUS",
        help="file, folder or pattern to learn from",
    )
    parser.add_argument("--output", required=True, type=filled_path, metavar="DIR", help="folder to make; new or empty")
    parser.add_argument("--resume", action="store_true", help="go on with the interrupted run that was to make DIR")
    parser.add_argument(
        "--head-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the head's own, listed below, its value as JSON; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print what training.json holds")
    _add_data(parser.add_argument_group("data"))
    _add_answers(parser.add_argument_group("answers by the model"))
    _add_steps(parser.add_argument_group("steps"))
    add_device_options(parser.add_argument_group("device"))


def run(args: argparse.Namespace) -> int:
    """Train; returns the exit code."""
    options = _options(args)
    if options.head in HEAD_OPTIONS:
        require_known(options.head, options.head_options)
    require_threads(args)
    require_models(args)

    from suffolk.serving.drafters.training.heads import head_maker
    from suffolk.serving.drafters.training.progress import show_progress
    from suffolk.serving.drafters.training.run import train

    head_maker(options.head)  # refuse an unknown name before anything is read

    def load(options: TrainOptions) -> Target:
        return load_target(args, options.batch * options.window, accelerate=False)

    silence_transformers()
    with show_progress() as progress:
        found = train(options, progress, args.resume, load)
    print(json.dumps(found) if args.json else "\n".join(_lines(found, options.output)))
    return 0


def _lines(found: dict[str, Any], output: Path) -> list[str]:
    """The result for people."""
    result = found["result"]
    lines = [
        f"{found['head']} head of {found['parameters']:,} parameters, {result['steps']:,} steps, {result['tokens']:,} tokens"
    ]
    if result["held_out_acceptance"] is not None:
        shares = " ".join(f"{share:.1%}" for share in result["held_out_acceptance"])
        lines.append(f"held out: loss {result['held_out_loss']:.4f}, acceptance by depth {shares}")
        lines.append(f"accepted tokens of a draft with one candidate a depth: {result['expected_tokens']:.2f}")
    return [*lines, f"wrote {output}"]


def _add_data(group: argparse._ArgumentGroup) -> None:
    _number(group, "--window", int, "N", "tokens that model and head see together; longer documents become several")
    _number(group, "--batch", int, "N", "windows in a pass")
    _number(
        group, "--draft-share", float, "SHARE", "of the drafts of a window, how many a pass trains; fewer are faster"
    )
    _number(
        group,
        "--held-out",
        float,
        "SHARE",
        "documents that measure the head and are not trained on, at least one; 0: none",
    )
    _number(group, "--evaluate-windows", int, "N", "most held-out windows in an evaluation")
    group.add_argument(
        "--cache",
        dest="cache_bytes",
        default="0",
        metavar="BYTES",
        help="keep the model's hidden states beside DIR, up to so many bytes (K, M, G, T), for several passes (default: off)",
    )


def _add_answers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--regenerate",
        action="store_true",
        help="the model writes each conversation's last answer, and goes on with texts",
    )
    for flag, kind, name, words in (
        ("--temperature", float, "T", "0: greedy"),
        ("--max-new-tokens", int, "N", "longest answer"),
        ("--prompt-tokens", int, "N", "of a text, how many of its first tokens are the prompt"),
        ("--slots", int, "N", "answers written at once"),
    ):
        default = _ANSWERS[flag.strip("-").replace("-", "_")]
        group.add_argument(flag, type=kind, metavar=name, help=f"{words} (default: {default})")


def _add_steps(group: argparse._ArgumentGroup) -> None:
    length = group.add_mutually_exclusive_group()
    length.add_argument("--passes", type=float, metavar="N", help="passes over the text (default: 1)")
    length.add_argument("--steps", type=int, metavar="N", help="steps, in place of passes")
    _number(group, "--accumulate", int, "N", "batches in a step")
    _number(group, "--learning-rate", float, "RATE", "its highest value")
    _number(group, "--warmup", float, "SHARE", "of the steps, over which it rises; then it falls as a cosine does")
    _number(group, "--weight-decay", float, "W", "of AdamW")
    _number(group, "--clip", float, "NORM", "longest gradient; 0: any")
    _number(group, "--seed", int, "N", "of first weights, order and noise")
    _number(group, "--evaluate-every", int, "STEPS", "steps between two points of the curve")
    _number(group, "--save-every", int, "STEPS", "steps between two checkpoints")


def _number(group: argparse._ArgumentGroup, flag: str, kind: type, name: str, words: str) -> None:
    default = _DEFAULTS[flag.strip("-").replace("-", "_")]
    group.add_argument(flag, type=kind, default=default, metavar=name, help=f"{words} (default: {default})")


def _options(args: argparse.Namespace) -> TrainOptions:
    same = (
        "head", "model", "output", "window", "batch", "accumulate", "draft_share", "learning_rate", "warmup", "steps", "passes",
        "weight_decay", "clip", "dtype", "device", "threads", "seed", "held_out", "evaluate_every", "evaluate_windows",
        "save_every",
    )  # fmt: skip
    return TrainOptions(
        **{name: getattr(args, name) for name in same},
        corpora=tuple(args.corpora),
        head_options=_head_options(args.head_option),
        cache_bytes=_bytes(args.cache_bytes),
        regenerate=_regeneration(args),
    )


def _regeneration(args: argparse.Namespace) -> Regeneration | None:
    """None without --regenerate. Raises InvalidArgument for settings of it alone."""
    given = {name: getattr(args, name) for name in _ANSWERS if getattr(args, name) is not None}
    if args.regenerate:
        return Regeneration(**given)
    for name, value in given.items():
        flag = name.replace("_", "-")
        raise InvalidArgument(f"--{flag} {value} is of answers by the model; add --regenerate, or leave it out")
    return None


def _head_options(words: list[str]) -> dict[str, Any]:
    """Values as JSON, or as text where they are none. Raises InvalidArgument: no NAME=VALUE."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise InvalidArgument(f"--head-option {word!r}: write it as NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _bytes(text: str) -> int:
    """A size such as 500M. Raises InvalidArgument: none."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    count = text[: len(text) - len(unit)]
    if unit not in _UNITS or not count.isdecimal():
        raise InvalidArgument(f"--cache {text!r} is no size; give bytes, such as 500M or 200G")
    return int(count) * _UNITS[unit]
