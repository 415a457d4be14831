"""Measures levels on prompts, plans hierarchies from the results, and compares the plans to plain decoding."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from suffolk.benchmarks.hierarchy.agreement import Ids
from suffolk.benchmarks.hierarchy.measurement import Measurements, measure_levels
from suffolk.benchmarks.hierarchy.options import HierarchyOptions, read_stacks, wanted_levels
from suffolk.benchmarks.hierarchy.trial import PLAIN, Trial, TrialSummary
from suffolk.benchmarks.prompts import encode_prompt, load_prompts
from suffolk.datastore.files import write_json
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.hierarchy.load import StackLoader
from suffolk.serving.decoding.drafters.hierarchy.plan import Plan, fastest, plans_by_size
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import StackLevel, name_stack, read_stack
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

_WARM_UP = 64
"""Tokens of the first prompt that a warm-up run reads."""


@dataclass(frozen=True, slots=True)
class MeasuredHierarchy:
    """Prediction and measurement of one stack.

    Attributes:
        predicted_seconds, seconds: time per token.
        predicted_speedup, speedup: tokens per second, divided by plain decoding's.
        predicted_tokens, tokens: tokens per target pass.
        reading_seconds: time that the drafting levels take to read a prompt.
        identical: number of answers that equal plain decoding's.
    """

    stack: str
    predicted_seconds: float
    predicted_speedup: float
    predicted_tokens: float
    seconds: float
    speedup: float
    tokens: float
    reading_seconds: float
    identical: int


@dataclass(frozen=True, slots=True)
class HierarchyResult:
    """The plans and the runs of one command.

    Attributes:
        plans: the best plan of each size; empty if stacks were given.
        outcomes: one result for each stack that ran.
        plain: the speed of plain decoding; None if nothing ran.
        prompts: number of prompts that the stacks ran on.
        is_stopped: whether Ctrl-C ended the runs.
    """

    plans: list[Plan]
    outcomes: list[MeasuredHierarchy]
    plain: TrialSummary | None
    prompts: int
    is_stopped: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        document: dict[str, Any] = {"measured": [asdict(each) for each in self.outcomes]}
        if self.plain is not None:
            document["plain_seconds"] = self.plain.seconds
        if self.plans:
            document |= {"plan": asdict(fastest(self.plans)), "by_levels": [asdict(plan) for plan in self.plans]}
        return document


def measure_hierarchy(
    options: HierarchyOptions, model: str, target: Target, stores: Sequence[Retriever], limits: Limits
) -> HierarchyResult:
    """Measure the levels, plan from the results, and compare the plans to plain decoding.

    Args:
        model: the target's folder or hub name, which holds its tokenizer.

    Raises:
        KeyboardInterrupt: Ctrl-C came before there was a plan.

        Other errors are those of ``read_stacks`` and ``wanted_levels``.
    """
    given = read_stacks(options)
    settings = SamplingSettings(
        options.max_new_tokens, options.temperature, seed=options.seed, verification=options.verification
    )
    texts = load_prompts(options.prompts, "chat", options.limit, options.seed)
    prompts = [np.asarray(encode_prompt(each, target.tokenizer, model), np.int32) for each in texts]
    stacks = StackLoader(target, options.draft_model, options.head, stores, limits, options.dtype)
    found = measure_levels(target, stacks, wanted_levels(options, given), prompts, settings, options.depth)
    levels = found.levels()
    begin = time.perf_counter()
    plans = [] if given else plans_by_size(levels, options.depth)
    if plans:
        took = (time.perf_counter() - begin) * 1e3
        print(f"planned {len(levels.levels)} levels in {took:.0f} ms: {fastest(plans)}", file=sys.stderr, flush=True)
    if options.save_rates is not None:
        write_json(options.save_rates, asdict(levels))
    chosen = given or [read_stack(str(plan)) for plan in plans if len(plan.names) > 1]
    try:
        outcomes, plain = _run(options, stacks, target, found, chosen, prompts, settings)
    except KeyboardInterrupt:
        if not plans:
            raise
        return HierarchyResult(plans, [], None, len(prompts), True)
    return HierarchyResult(plans, outcomes, plain, len(prompts))


def _run(
    options: HierarchyOptions,
    stacks: StackLoader,
    target: Any,
    found: Measurements,
    chosen: Sequence[tuple[StackLevel, ...]],
    prompts: Sequence[Ids],
    settings: SamplingSettings,
) -> tuple[list[MeasuredHierarchy], TrialSummary | None]:
    """Compare each stack of ``chosen`` to plain decoding, in turn."""
    if not chosen:
        return [], None
    capacity = max(map(len, prompts)) + settings.max_new_tokens
    names = [name_stack(stack) for stack in chosen]
    drafters = {
        name: stacks.drafter(stack, 1, capacity, thrifty=False) for name, stack in zip(names, chosen, strict=True)
    }
    trial = Trial(target, drafters, capacity)
    for way in (PLAIN, *names):  # a warm-up run for each method
        trial.run(way, prompts[0][:_WARM_UP], replace(settings, max_new_tokens=8))
    runs = trial.compare(prompts, settings, options.rounds)
    plain, before = TrialSummary.of(runs[PLAIN]), float(found.costs[-1][0])
    outcomes = []
    for name, stack in zip(names, chosen, strict=True):
        predicted, measured = found.predict(stack), TrialSummary.of(runs[name])
        same = sum(
            np.array_equal(one.tokens, other.tokens) for one, other in zip(runs[PLAIN][0], runs[name][0], strict=True)
        )
        outcomes.append(
            MeasuredHierarchy(
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
