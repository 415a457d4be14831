"""Measures levels on prompts, plans with them, and runs what was planned beside plain decoding, for ``suffolk plan --measure``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from suffolk.benchmarks.json_file import write_json
from suffolk.benchmarks.prompts import encode_prompt, load_prompts
from suffolk.build_index.report import count
from suffolk.cli.model_options import load_target, opened_stores, require_models, require_threads
from suffolk.cli.plan_options import check_measuring, read_stacks, wanted_levels
from suffolk.cli.plan_report import milliseconds, plan_lines
from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.drafters.hierarchy.plan import Plan, fastest, plans_by_size
from suffolk.serving.drafters.hierarchy.rates_file import to_json
from suffolk.serving.drafters.hierarchy.stack_spec import StackLevel, name_stack, read_stack
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.engine.sampling.settings import SamplingSettings

if TYPE_CHECKING:
    from suffolk.serving.drafters.hierarchy.agreement import Ids
    from suffolk.serving.drafters.hierarchy.load import StackLoader
    from suffolk.serving.drafters.hierarchy.measurement import Measurements
    from suffolk.serving.drafters.hierarchy.trial import TrialSummary

_WARM_UP = 64
"""Tokens of a prompt."""
_COLUMNS = f"  {'predicted ms':>12} {'speed-up':>9} {'measured ms':>12} {'speed-up':>9} {'off by':>7} {'tokens a pass':>15}  stack"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A stack as predicted and as measured: seconds of a token, times as fast as plain decoding, tokens a pass of the target."""

    stack: str
    predicted_seconds: float
    predicted_speedup: float
    predicted_tokens: float
    seconds: float
    speedup: float
    tokens: float
    reading_seconds: float
    identical: int


def plan_measured(args: argparse.Namespace) -> int:
    """Measure, plan, run, print; returns the exit code."""
    require_threads(args)
    given = read_stacks(args)
    check_measuring(args, given)
    wanted = wanted_levels(args, given)
    require_models(args)
    settings = SamplingSettings(args.max_new_tokens, args.temperature, seed=args.seed, verification=args.verification)
    texts = load_prompts(args.prompts, "chat", args.limit, args.seed)
    from suffolk.serving.drafters.hierarchy.load import StackLoader  # loads torch, which takes seconds

    limits = Limits()
    with opened_stores(args.datastore, None, limits, args.model) as stores:
        target = load_target(args, 4096)
        prompts = [np.asarray(encode_prompt(each, target.tokenizer, args.model), np.int32) for each in texts]
        stacks = StackLoader(target, args.draft_model, args.head, stores, limits, args.dtype)
        found, plans, levels = _plan(args, stacks, target, wanted, prompts, settings, bool(given))
        if args.save_rates is not None:
            write_json(args.save_rates, to_json(levels))
        chosen = given or [read_stack(str(plan)) for plan in plans if len(plan.names) > 1]
        try:
            outcomes, plain = _run(args, stacks, target, found, chosen, prompts, settings)
        except KeyboardInterrupt:
            if plans:
                _print(args, plans, [], None, len(prompts))
                raise KeyboardInterrupt("while the plans ran; what was planned is printed") from None
            raise
    _print(args, plans, outcomes, plain, len(prompts))
    return 0


def _plan(
    args: argparse.Namespace,
    stacks: StackLoader,
    target: Any,
    wanted: Sequence[tuple[str, float | None]],
    prompts: Sequence[Ids],
    settings: SamplingSettings,
    is_given: bool,
) -> tuple[Measurements, list[Plan], Levels]:
    from suffolk.serving.drafters.hierarchy.measurement import measure_levels

    found = measure_levels(target, stacks, wanted, prompts, settings, args.depth, _say)
    levels = found.levels()
    begin = time.perf_counter()
    plans = [] if is_given else plans_by_size(levels, args.depth)
    if plans:
        _say(f"planned {len(levels.levels)} levels in {(time.perf_counter() - begin) * 1e3:.0f} ms: {fastest(plans)}")
    return found, plans, levels


def _run(
    args: argparse.Namespace,
    stacks: StackLoader,
    target: Any,
    found: Measurements,
    chosen: Sequence[tuple[StackLevel, ...]],
    prompts: Sequence[Ids],
    settings: SamplingSettings,
) -> tuple[list[Outcome], TrialSummary | None]:
    """Each of ``chosen`` for real, beside plain decoding."""
    from suffolk.serving.drafters.hierarchy.trial import PLAIN, Trial, TrialSummary

    if not chosen:
        return [], None
    capacity = max(map(len, prompts)) + settings.max_new_tokens
    names = [name_stack(stack) for stack in chosen]
    drafters = {
        name: stacks.drafter(stack, 1, capacity, thrifty=False) for name, stack in zip(names, chosen, strict=True)
    }
    trial = Trial(target, drafters, capacity)
    for way in (PLAIN, *names):  # the first runs of anything are slow
        trial.run(way, prompts[0][:_WARM_UP], replace(settings, max_new_tokens=8))
    _say(f"running {len(names)} stacks beside plain decoding, {args.rounds} rounds")
    runs = trial.compare(
        (PLAIN, *names), prompts, settings, args.rounds, lambda done, total: _say(f"{done} of {total} runs")
    )
    plain, before = TrialSummary.of(runs[PLAIN]), float(found.costs[-1][0])
    outcomes = []
    for name, stack in zip(names, chosen, strict=True):
        predicted, measured = found.predict(stack), TrialSummary.of(runs[name])
        same = sum(
            np.array_equal(one.tokens, other.tokens) for one, other in zip(runs[PLAIN][0], runs[name][0], strict=True)
        )
        outcomes.append(
            Outcome(
                name,
                predicted.seconds,
                before / predicted.seconds,
                predicted.tokens,
                measured.seconds,
                plain.seconds / measured.seconds,
                measured.tokens,
                measured.reading,
                int(same),
            )  # fmt: skip
        )
    return outcomes, plain


def _print(
    args: argparse.Namespace, plans: list[Plan], outcomes: list[Outcome], plain: TrialSummary | None, prompts: int
) -> None:
    if args.json:
        document: dict[str, Any] = {"measured": [asdict(each) for each in outcomes]}
        if plain is not None:
            document["plain_seconds"] = plain.seconds
        if plans:
            document |= {"plan": asdict(fastest(plans)), "by_levels": [asdict(plan) for plan in plans]}
        print(json.dumps(document))
        return
    lines = [*plan_lines(plans), ""] if plans else []
    if plain is not None:
        lines += [
            f"measured on {count(prompts, 'prompt')}, {count(args.rounds, 'round')}, prompts' reading left out: plain decoding "
            f"{milliseconds(plain.seconds)} ms a token",
            _COLUMNS,
        ]
        lines += [_line(each, prompts, args) for each in outcomes]
    print("\n".join(lines))


def _line(each: Outcome, prompts: int, args: argparse.Namespace) -> str:
    off = each.predicted_speedup / each.speedup - 1
    told = (
        ""
        if args.verification == "rejection" and args.temperature
        else f"; {each.identical} of {count(prompts, 'text')} equal"
    )
    reading = f"; reads a prompt in {each.reading_seconds:.2f} s more" if each.reading_seconds >= 0.01 else ""
    return (
        f"  {milliseconds(each.predicted_seconds):>12} {each.predicted_speedup:>9.3f} {milliseconds(each.seconds):>12} "
        f"{each.speedup:>9.3f} {off:>+7.1%} {each.predicted_tokens:>7.2f} {each.tokens:>7.2f}  {each.stack}{told}{reading}"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
