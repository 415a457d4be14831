"""The options of ``suffolk generate``."""

from __future__ import annotations

import argparse

from suffolk.cli.filled import filled, filled_path
from suffolk.cli.model_options import (
    add_calibration_option,
    add_device_options,
    add_draft_options,
)
from suffolk.cli.record_option import add_record_option
from suffolk.serving.drafters.registry import NONE, names
from suffolk.serving.engine.sampling.settings import VERIFICATIONS, SamplingSettings

EPILOG = """examples:
  suffolk generate --model MODEL_FOLDER "Write a sort function."
  suffolk generate --model MODEL_FOLDER --datastore STORE --compare-plain < prompt.txt
  suffolk generate --model MODEL_FOLDER --datastore grpc://127.0.0.1:7700/STORE --temperature 0.7 --seed 1 "A poem."
  suffolk generate --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER "Write a sort function."
  suffolk generate --model MODEL_FOLDER --head HEAD_FOLDER --compare-plain "Write a sort function."
  suffolk generate --model MODEL_FOLDER --datastore STORE --recycle "Write a sort function."
  suffolk generate --model MODEL_FOLDER --record texts.jsonl "Write a sort function."      # for 'suffolk replay'
  suffolk generate --model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --levels "prompt-lookup:4 > draft-model:6" "A poem."
  suffolk generate --worker grpc://127.0.0.1:7710 "Write a sort function."
"""


def add_generate_options(parser: argparse.ArgumentParser) -> None:
    """Declare them all, with examples.

    ``parser``: of the command."""
    parser.epilog = EPILOG
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the prompt (default: read from stdin)")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--model", type=filled, help="model folder in the Hugging Face layout, or hub name")
    place.add_argument("--worker", type=filled, metavar="URL", help="let 'suffolk worker' at grpc://HOST:PORT do it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--chat", action="store_true", help="wrap the prompt in the model's chat template (default if it has one)"
    )
    form.add_argument("--raw", action="store_true", help="continue the prompt as it is")
    _add_drafting(parser.add_argument_group("drafting"))
    _add_verification(parser.add_argument_group("verification"))
    _add_sampling(parser.add_argument_group("sampling and ends"))
    add_device_options(parser.add_argument_group("device"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--colour", choices=("auto", "always", "never"), default="auto", help="colour accepted tokens by source"
    )
    output.add_argument(
        "--explain",
        action="store_true",
        help="say for each step that drafted what was retrieved, what else was drafted or left out and why, and what came of it "
        "(of hybrid)",
    )
    output.add_argument(
        "--compare-plain", action="store_true", help="decode without drafts too and compare text and speed"
    )
    output.add_argument("--stats-json", type=filled_path, metavar="FILE", help="write the report as JSON")
    add_record_option(output)
    output.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="add each token's log-probability and N alternatives (0..20) to --stats-json",
    )


def _add_drafting(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--drafter",
        choices=(NONE, *names()),
        help="who proposes (default: hybrid, all sources in one tree; prompt-lookup where there is but that)",
    )
    add_draft_options(group)
    add_calibration_option(group)


def _add_verification(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--verification",
        choices=VERIFICATIONS,
        default="match",
        help="which drafted tokens are accepted. match: those that the model draws itself, so that drafts never change the text. "
        "rejection: speculative sampling, whose text is another of the same law; acts on redrafter and hierarchy, which sample "
        "chains; other drafters' trees are verified as by match. typical: LOSSY, all that are likely enough, so that the "
        "text depends on drafts and is not the model's law (default: %(default)s)",
    )
    group.add_argument(
        "--epsilon",
        type=float,
        metavar="P",
        help="of typical: tokens of a probability of at least min(epsilon, delta * exp(-entropy)) are accepted "
        f"(default: {SamplingSettings.__dataclass_fields__['epsilon'].default})",
    )
    group.add_argument(
        "--delta",
        type=float,
        metavar="D",
        help=f"of typical, as above (default: {SamplingSettings.__dataclass_fields__['delta'].default})",
    )


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-new-tokens", type=int, default=256, help="longest text, in tokens (default: %(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, help="0: greedy (default: %(default)s)")
    group.add_argument("--top-k", type=int, default=0, help="0: no limit (default: %(default)s)")
    group.add_argument("--top-p", type=float, default=1.0, help="1: no limit (default: %(default)s)")
    group.add_argument(
        "--min-p",
        type=float,
        default=0.0,
        help="least share of the likeliest token's probability; 0: no limit (default: %(default)s)",
    )
    group.add_argument(
        "--repetition-penalty",
        type=float,
        default=1.0,
        help="above 1: make tokens of prompt and text less likely; 1: off (default: %(default)s)",
    )
    group.add_argument(
        "--presence-penalty",
        type=float,
        default=0.0,
        help="taken off the logit of each token generated before; -2..2 (default: %(default)s)",
    )
    group.add_argument(
        "--frequency-penalty",
        type=float,
        default=0.0,
        help="taken off the logit for each time the token was generated before; -2..2 (default: %(default)s)",
    )
    group.add_argument(
        "--bad-words",
        action="append",
        default=[],
        metavar="STR",
        help="never generate this text as its own tokens, with or without a space in front; may be repeated",
    )
    group.add_argument(
        "--seed", type=int, default=0, help="same seed, same text, whatever drafts (default: %(default)s)"
    )
    group.add_argument(
        "--stop", action="append", default=[], metavar="STR", help="end before this text; may be repeated"
    )
    group.add_argument("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")
