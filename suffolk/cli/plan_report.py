"""How ``suffolk plan`` prints plans."""

from __future__ import annotations

from suffolk.cli.printable import printable
from suffolk.serving.drafters.hierarchy.plan import Plan, fastest


def plan_lines(plans: list[Plan]) -> list[str]:
    """The best of ``plans``, and what each further level adds."""
    best = fastest(plans)
    return [*_summary(best), "", *_table(plans, best)]


def milliseconds(seconds: float) -> str:
    """For people."""
    return f"{seconds * 1e3:.5g}"


def _summary(best: Plan) -> list[str]:
    if len(best.names) == 1:
        return [
            f"plan: decode with {printable(str(best))} alone, {milliseconds(best.seconds)} ms a token; no hierarchy is faster"
        ]
    target = printable(best.names[-1])
    return [
        f"plan: {printable(str(best))}",
        f"predicted: {milliseconds(best.seconds)} ms a token, {best.speedup:.3f} times as fast as {target} alone; "
        f"{best.tokens:.2f} tokens a pass of it",
    ]


def _table(plans: list[Plan], best: Plan) -> list[str]:
    """What each further level adds."""
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
        "*: the plan; each row is the best found with so many levels, and what it adds to the row before",
    ]
