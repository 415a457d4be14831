"""Plan a hierarchy of drafters. A plan names the levels that draft for the target, and the number
of tokens that each level hands up. The best plan generates the most tokens a second.

In hierarchical speculative decoding, each level verifies the drafts of the level below it. The
costs of passes and the acceptance rates between levels determine the best plan, its time for a
token, and the gain of each level. The best plan may be the target alone, which is plain decoding.

With --measure, costs and acceptance rates are measured on prompts and the model's own answers. The
best plan of each size then runs in turn with plain decoding. 'suffolk generate', 'worker' and
'bench decode' take a plan as --levels.

FILE is JSON with

  levels      list of levels from the bottom to the top, the target last. Each has a "name" and the
              "seconds" of a pass. "seconds" is a number, or a list whose entry d is for a pass that verifies d
              drafted tokens (entry 0: plain decoding of one token). "retrieval": true marks a datastore,
              which can only be the bottom level; its "seconds" are of one call. It may have "found":
              entry j is the probability that j tokens are found; the last entry is for its j or more
  acceptance  has a row for each level as drafter, and in it an entry for each level as verifier: the
              probability, 0 to 1, that a drafted token is accepted; null if it is unknown. Only entries
              to the right of the row's own level are used
  runs        optional, for acceptances that come in bursts, as with retrieval: a list of objects with
              "drafter", "verifier" and "probabilities", whose entry j is the probability that exactly j
              tokens are accepted. It replaces the rate of these two levels
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.benchmarks.hierarchy.options import HierarchyOptions, check_measuring, read_stacks, wanted_levels
from suffolk.benchmarks.prompts import load_prompts
from suffolk.build_index.report import count
from suffolk.cli.model import DeviceOptions, load_target
from suffolk.cli.options import setting
from suffolk.cli.options.setting import passed_on
from suffolk.cli.output_file import require_folder
from suffolk.cli.stores import opened_stores
from suffolk.datastore.checks import whole_within
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import printable
from suffolk.datastore.settings import option
from suffolk.serving.decoding.drafters.hierarchy.levels import Levels, read_rates
from suffolk.serving.decoding.drafters.hierarchy.plan import DEPTH, Plan, fastest, plans_by_size
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import MOST_TOKENS
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.model.model_folder import find_folder

if TYPE_CHECKING:
    from suffolk.benchmarks.hierarchy.measure import HierarchyResult, MeasuredHierarchy


RATES = """
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
}"""
EXAMPLES = """
suffolk hierarchy plan --rates rates.json
suffolk hierarchy plan --rates rates.json --depth 22 --json
suffolk hierarchy plan --measure --model MODEL --draft-model SMALLER --exit 8 --prompts p.jsonl --limit 8 --save-rates rates.json
suffolk hierarchy plan --measure --model MODEL --draft-model SMALLER --prompts p.jsonl --temperature 0.8 --verification rejection
suffolk hierarchy plan --measure --model MODEL --draft-model SMALLER --prompts p.jsonl --stack "prompt-lookup:4 > draft-model:6"

example of a FILE:""" + RATES.replace("\n", "\n  ")
_COMMON = ("rates", "depth", "json")


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions(setting.Options):
    """What to measure."""

    GROUP = "measuring"
    measure: bool = option(False, "measure the levels on prompts, plan, and compare the plan with plain decoding")
    model: str | None = option(None, "folder or hub name of the target")


@dataclass(frozen=True, kw_only=True)
class Options(MeasuringOptions, DeviceOptions, HierarchyOptions):
    GROUP = ""  # first in the help
    rates: Path | None = option(None, "JSON file with costs and acceptance rates of the levels")
    depth: int = option(DEPTH, "the most tokens of a level, up to 256, or 64 with --measure")
    json: bool = option(False, "print the result as JSON")


def run(options: Options) -> None:
    if (options.rates is None) is not options.measure:
        raise InvalidArgument("--rates is missing; give --rates FILE, or --measure with --model and --prompts")
    if options.rates is not None:
        for name, given in options.given.items():
            if name not in _COMMON:
                raise InvalidArgument(
                    f"{given.label} has no effect without --measure; leave it out, or give --measure in place of --rates"
                )
        print(report(read_rates(options.rates), options.depth, options.json))
        return
    if options.model is None or not options.prompts:
        raise InvalidArgument(
            f"--measure needs {'--model MODEL' if options.model is None else '--prompts FILE'}; add it"
        )
    whole_within("--depth", options.depth, 1, MOST_TOKENS)
    require_folder("--save-rates", options.save_rates)
    _measure(options, options.model)


def report(levels: Levels, depth: int, as_json: bool) -> str:
    """The output of ``suffolk hierarchy plan`` for ``levels``. Raises the InvalidArgument of ``plans_by_size``."""
    plans = plans_by_size(levels, depth)
    if as_json:
        return json.dumps({"plan": asdict(fastest(plans)), "by_levels": [asdict(plan) for plan in plans]})
    return "\n".join(plan_lines(plans))


def _measure(options: Options, model: str) -> None:
    hierarchy = passed_on(options, HierarchyOptions)
    given = read_stacks(hierarchy)
    check_measuring(hierarchy, given)
    wanted_levels(hierarchy, given)  # before a model is loaded: refuse levels that cannot be measured
    for name in (model, options.draft_model):
        if name is not None:
            find_folder(name)
    load_prompts(options.prompts, "chat", options.limit, options.seed)  # refuse prompts that cannot be read
    limits = Limits()
    with opened_stores(options.datastore, None, limits, model) as stores:
        target = load_target(model, options, 4096)
        from suffolk.benchmarks.hierarchy.measure import measure_hierarchy  # loads torch, which takes seconds

        result = measure_hierarchy(hierarchy, model, target, stores, limits)
    print(json.dumps(result.to_dict()) if options.json else "\n".join(result_lines(result, hierarchy)))
    if result.is_stopped:
        raise KeyboardInterrupt("while the plans ran; what was planned is printed")


_COLUMNS = f"  {'predicted ms':>12} {'speed-up':>9} {'measured ms':>12} {'speed-up':>9} {'off by':>7} {'tokens a pass':>15}  stack"


def plan_lines(plans: list[Plan]) -> list[str]:
    """Format the best of ``plans``, and the gain of each further level."""
    best = fastest(plans)
    return [*_summary(best), "", *_table(plans, best)]


def result_lines(result: HierarchyResult, options: HierarchyOptions) -> list[str]:
    """Format the plans, and each stack as predicted and as measured."""
    lines = [*plan_lines(result.plans), ""] if result.plans else []
    if result.plain is not None:
        lines += [
            f"measured on {count(result.prompts, 'prompt')}, {count(options.rounds, 'round')}, without prompt passes: "
            f"plain decoding {milliseconds(result.plain.seconds)} ms a token",
            _COLUMNS,
        ]
        lines += [_line(each, result.prompts, options) for each in result.outcomes]
    return lines


def milliseconds(seconds: float) -> str:
    """Format seconds for display, in milliseconds."""
    return f"{seconds * 1e3:.5g}"


def _summary(best: Plan) -> list[str]:
    if len(best.names) == 1:
        return [
            f"plan: decode with {printable(str(best))} only, {milliseconds(best.seconds)} ms a token; no hierarchy is "
            f"faster"
        ]
    target = printable(best.names[-1])
    return [
        f"plan: {printable(str(best))}",
        f"predicted: {milliseconds(best.seconds)} ms a token, {best.speedup:.3f} times as fast as plain decoding with {target}; "
        f"{best.tokens:.2f} tokens per target pass",
    ]


def _table(plans: list[Plan], best: Plan) -> list[str]:
    """Format the gain of each further level."""
    lines = [f"  {'levels':>6} {'ms a token':>12} {'speed-up':>9} {'adds':>8}  plan (level:tokens, from the bottom)"]
    before = plans[0]
    for plan in plans:
        adds = "" if plan is before else f"{plan.speedup / before.speedup - 1:+.1%}"
        cells = f"{milliseconds(plan.seconds):>12} {plan.speedup:>9.3f} {adds:>8}"
        lines.append(f"{'*' if plan is best else ' '} {len(plan.names):>6} {cells}  {printable(str(plan))}")
        before = plan
    return [
        *lines,
        "",
        "*: the plan; each row shows the best plan with that number of levels, and its gain over the row before",
    ]


def _line(each: MeasuredHierarchy, prompts: int, options: HierarchyOptions) -> str:
    off = each.predicted_speedup / each.speedup - 1
    is_other_text = options.verification == "rejection" and options.temperature
    same = "" if is_other_text else f"; {each.identical} of {count(prompts, 'text')} equal"
    reading = (
        f"; prompt passes of its levels take {each.reading_seconds:.2f} s more" if each.reading_seconds >= 0.01 else ""
    )
    return (
        f"  {milliseconds(each.predicted_seconds):>12} {each.predicted_speedup:>9.3f} {milliseconds(each.seconds):>12} "
        f"{each.speedup:>9.3f} {off:>+7.1%} {each.predicted_tokens:>7.2f} {each.tokens:>7.2f}  {each.stack}{same}{reading}"
    )
