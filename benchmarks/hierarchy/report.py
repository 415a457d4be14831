"""Formats plans and their measurements as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suffolk.benchmarks.hierarchy.options import HierarchyOptions
from suffolk.build_index.report import count
from suffolk.datastore.files import printable
from suffolk.serving.decoding.drafters.hierarchy.plan import Plan, fastest

if TYPE_CHECKING:
    from suffolk.benchmarks.hierarchy.measure import HierarchyResult, MeasuredHierarchy

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
