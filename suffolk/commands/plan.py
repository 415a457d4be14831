"""Plan a hierarchy of drafters: which levels draft for the target, and how many tokens each hands up, so that tokens come fastest.

In hierarchical speculative decoding each level verifies what the level below it drafts. From what passes cost and how often the
levels accept each other's tokens follow the best levels and lengths, what a token then costs, and what each level adds; the target
alone, plain decoding, is a normal answer. docs/HIERARCHY.md says how it is computed.

FILE is JSON with

  levels      from the bottom to the top, the target last: "name", and "seconds" of a pass: a number, or a list whose entry d is a
              pass that verifies d drafted tokens (entry 0: one token's plain decoding). "retrieval": true is for a datastore, which
              drafts at the bottom alone, for the "seconds" of one call
  acceptance  a row for each level as drafter, with an entry for each level as verifier: how probably a drafted token is accepted,
              0 to 1, or null where it is not known. Only entries behind the row's own level are used
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
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from serving.drafters.hierarchy.levels import Levels
from serving.drafters.hierarchy.plan import DEPTH, Plan, fastest, plans_by_size
from serving.drafters.hierarchy.rates_file import read_rates
from suffolk.commands.filled import filled_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk plan``."""
    parser.add_argument(
        "--rates", type=filled_path, required=True, metavar="FILE", help="costs and rates of the levels, as JSON"
    )
    parser.add_argument(
        "--depth", type=int, default=DEPTH, metavar="N", help="most tokens to ask of a level (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Read, plan, print; returns the exit code."""
    print(report(read_rates(args.rates), args.depth, args.json))
    return 0


def report(levels: Levels, depth: int, as_json: bool) -> str:
    """What ``suffolk plan`` prints of ``levels``. Raises InvalidArgument as ``plans_by_size``."""
    plans = plans_by_size(levels, depth)
    best = fastest(plans)
    if as_json:
        return json.dumps({"plan": asdict(best), "by_levels": [asdict(plan) for plan in plans]})
    return "\n".join([*_summary(best), "", *_table(plans, best)])


def _summary(best: Plan) -> list[str]:
    if len(best.names) == 1:
        return [f"plan: decode with {best} alone, {_milliseconds(best.seconds)} ms a token; no hierarchy is faster"]
    return [
        f"plan: {best}",
        f"predicted: {_milliseconds(best.seconds)} ms a token, {best.speedup:.3f} times as fast as {best.names[-1]} alone; "
        f"{best.tokens:.2f} tokens a pass of it",
    ]


def _table(plans: list[Plan], best: Plan) -> list[str]:
    """What each further level adds."""
    lines = [f"  {'levels':>6} {'ms a token':>12} {'speed-up':>9} {'adds':>8}  plan (level:tokens, from the bottom)"]
    before = plans[0]
    for plan in plans:
        adds = "" if plan is before else f"{plan.speedup / before.speedup - 1:+.1%}"
        cells = f"{_milliseconds(plan.seconds):>12} {plan.speedup:>9.3f} {adds:>8}"
        lines.append(f"{'*' if plan is best else ' '} {len(plan.names):>6} {cells}  {plan}")
        before = plan
    return [
        *lines,
        "",
        "*: the plan; each row is the best found with so many levels, and what it adds to the row before",
    ]


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.5g}"
