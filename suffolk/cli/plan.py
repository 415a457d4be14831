"""Plan a hierarchy of drafters: which levels draft for the target, and how many tokens each hands up, so that tokens come fastest.

In hierarchical speculative decoding each level verifies what the level below it drafts. From what passes cost and how often the
levels accept each other's tokens follow the best levels and lengths, what a token then costs, and what each level adds; the target
alone, plain decoding, is a normal answer. docs/design/hierarchy.md says how it is computed.

With --measure all that is measured on prompts: what passes cost, and how far levels accept each other's tokens on the model's own
answers. The best plans of each size are then run beside plain decoding, and both are printed. A plan can be given to 'suffolk
generate', 'worker' and 'bench decode' as --levels.

FILE is JSON with

  levels      from the bottom to the top, the target last: "name", and "seconds" of a pass: a number, or a list whose entry d is a
              pass that verifies d drafted tokens (entry 0: one token's plain decoding). "retrieval": true is for a datastore, which
              drafts at the bottom alone, for the "seconds" of one call; "found", optional: entry j, that it finds j tokens, the
              last entry, so many or more
  acceptance  a row for each level as drafter, with an entry for each level as verifier: how probably a drafted token is accepted,
              of a datastore one that it found, 0 to 1, or null where it is not known. Only entries behind the row's own level count
  runs        optional: where acceptances come in bursts, as those of retrieval do, "drafter", "verifier" and "probabilities", whose
              entry j is that exactly j tokens are accepted; in place of the rate of the two

example of a FILE:
  {
    "levels": [
      {"name": "datastore", "seconds": 0.0001, "retrieval": true},
      {"name": "layer-8", "seconds": 0.006},
      {"name": "target", "seconds": [0.030, 0.031, 0.031, 0.032, 0.033]}
    ],
    "acceptance": [
      [null, null, null],
      [null, null, 0.8],
      [null, null, null]
    ],
    "runs": [
      {"drafter": "datastore", "verifier": "layer-8", "probabilities": [0.4, 0.2, 0.1, 0.1, 0.2]},
      {"drafter": "datastore", "verifier": "target", "probabilities": [0.6, 0.1, 0.1, 0.1, 0.1]}
    ]
  }

examples:
  suffolk plan --rates rates.json
  suffolk plan --rates rates.json --depth 22 --json
  suffolk plan --measure --model MODEL --draft-model SMALLER --exit 8 --prompts prompts.jsonl --limit 8 --save-rates rates.json
  suffolk plan --measure --model MODEL --draft-model SMALLER --prompts prompts.jsonl --temperature 0.8 --verification rejection
  suffolk plan --measure --model MODEL --draft-model SMALLER --prompts prompts.jsonl --stack "prompt-lookup:4 > draft-model:6"
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from suffolk.cli.drafter_options import add_drafter_options
from suffolk.cli.filled import filled, filled_path
from suffolk.cli.model_options import add_device_options
from suffolk.cli.output_file import require_folder
from suffolk.cli.plan_report import plan_lines
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.drafters.hierarchy.plan import DEPTH, fastest, plans_by_size
from suffolk.serving.drafters.hierarchy.rates_file import read_rates
from suffolk.serving.drafters.hierarchy.stack_spec import MOST_TOKENS
from suffolk.serving.engine.loop.checks import whole_within


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk plan``."""
    parser.add_argument("--rates", type=filled_path, metavar="FILE", help="costs and rates of the levels, as JSON")
    parser.add_argument(
        "--depth",
        type=int,
        default=DEPTH,
        metavar="N",
        help="most tokens to ask of a level, 256 at most, with --measure 64 (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    _add_measuring_and_device(parser)


def run(args: argparse.Namespace) -> int:
    """Read or measure, plan, print; returns the exit code."""
    if (args.rates is None) is not args.measure:
        raise InvalidArgument("plan needs --rates FILE, or --measure with --model and --prompts; give one of them")
    if not args.measure:
        _require_no_measuring(args)
        print(report(read_rates(args.rates), args.depth, args.json))
        return 0
    if args.model is None or args.prompts is None:
        raise InvalidArgument(f"--measure needs {'--model MODEL' if args.model is None else '--prompts FILE'}; add it")
    whole_within("--depth", args.depth, 1, MOST_TOKENS)
    require_folder("--save-rates", args.save_rates)
    from suffolk.cli.plan_measured import plan_measured

    return plan_measured(args)


def report(levels: Levels, depth: int, as_json: bool) -> str:
    """What ``suffolk plan`` prints of ``levels``. Raises InvalidArgument as ``plans_by_size``."""
    plans = plans_by_size(levels, depth)
    if as_json:
        return json.dumps({"plan": asdict(fastest(plans)), "by_levels": [asdict(plan) for plan in plans]})
    return "\n".join(plan_lines(plans))


def _add_measuring_and_device(parser: argparse.ArgumentParser) -> None:
    _add_measuring(parser.add_argument_group("measuring"))
    add_device_options(parser.add_argument_group("device"))


def _require_no_measuring(args: argparse.Namespace) -> None:
    """Raises InvalidArgument for an option that acts with --measure alone."""
    measuring = argparse.ArgumentParser(add_help=False)
    _add_measuring_and_device(measuring)
    for action in measuring._actions:
        if getattr(args, action.dest) != action.default:
            raise InvalidArgument(
                f"{action.option_strings[0]} does nothing without --measure; leave it out, or give --measure in place of --rates"
            )


def _add_measuring(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--measure",
        action="store_true",
        help="measure the levels on prompts, plan, and run the plan beside plain decoding",
    )
    group.add_argument("--model", type=filled, metavar="MODEL", help="the target: a folder, or hub name")
    group.add_argument(
        "--prompts", nargs="+", type=filled_path, metavar="PATH", help=".jsonl files, or folders of them"
    )
    group.add_argument("--draft-model", type=filled, metavar="MODEL", help="a smaller model with the same tokenizer")
    group.add_argument(
        "--exit",
        "--exit-layers",
        dest="exit",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="the model's first N layers; may be repeated",
    )
    group.add_argument(
        "--head",
        type=filled_path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="a trained exit; may be repeated",
    )
    add_drafter_options(group, ["datastore"])
    group.add_argument(
        "--stack",
        type=filled,
        action="append",
        default=[],
        metavar="LEVELS",
        help="predict and measure this stack instead, written as for 'suffolk generate --levels'; may be repeated",
    )
    group.add_argument("--save-rates", type=filled_path, metavar="FILE", help="write what was measured, for --rates")
    group.add_argument("--limit", type=int, metavar="N", help="prompts of each file, chosen at random (default: all)")
    group.add_argument(
        "--max-new-tokens", type=int, default=64, metavar="N", help="longest answer (default: %(default)s)"
    )
    group.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="runs of all prompts; medians count (default: %(default)s)"
    )
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: greedy (default: %(default)s)")
    group.add_argument(
        "--verification",
        choices=("match", "rejection"),
        default="match",
        help="how levels and target accept tokens (default: %(default)s)",
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of answers and of --limit (default: %(default)s)"
    )
