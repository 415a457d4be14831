"""Explains the steps of a hybrid: the retrieved nodes, the decision on each neural drafter, and the accepted tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.accepted_length import accepted_length
from suffolk.serving.drafters.registry import source_name
from suffolk.serving.engine.policy.draft_gate import GateDecision

MOST_STEPS = 100_000
"""Most steps that are kept."""


@dataclass(slots=True)
class ExplainedStep:
    """One step of one request.

    Attributes:
        position: tokens before the step.
        retrieved: nodes of retrieval sources.
        decisions: neural drafter -> its gate's decision.
        tree: the proposed tree.
        generated: tokens generated in the step.
        drafted: number of generated tokens that the tree contains, verified or not.
    """

    position: int
    retrieved: int
    decisions: Mapping[str, GateDecision]
    tree: DraftTree
    generated: int = 0
    drafted: int = 0

    def line(self) -> str:
        """The step in one line of text."""
        parts = [f"at {self.position}: {self.retrieved} nodes retrieved"]
        parts += [f"{name} {_reason(decision)}" for name, decision in self.decisions.items()]
        marks = [source_name(int(bits)) for bits in np.unique(self.tree.sources)]
        parts.append(
            f"{len(self.tree)} proposed ({', '.join(marks) or 'none'}), {self.tree.scores.sum():.2f} tokens expected"
        )
        return "; ".join([*parts, f"{self.generated} generated, {self.drafted} of them proposed"])


class Explanation:
    """The steps with drafts, in order. Not thread-safe. Read them only while the engine is idle."""

    def __init__(self) -> None:
        self.steps: list[ExplainedStep] = []
        self._open: dict[int, ExplainedStep] = {}

    def propose(
        self, request_id: int, position: int, retrieved: int, decisions: Mapping[str, GateDecision], tree: DraftTree
    ) -> None:
        """Record a request's draft."""
        step = self._open[request_id] = ExplainedStep(position, retrieved, decisions, tree)
        if len(self.steps) < MOST_STEPS:
            self.steps.append(step)

    def release(self, request_id: int) -> None:
        """Forget a request that has ended."""
        self._open.pop(request_id, None)

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        """Record the tokens generated after the request's draft."""
        step = self._open.pop(request_id, None)
        if step is not None:
            step.generated, step.drafted = len(tokens), accepted_length(step.tree, tokens)


def summary(steps: Sequence[ExplainedStep]) -> list[str]:
    """For each neural drafter: the steps in which it drafted or was left out, with the mean expected gain and cost."""
    lines = []
    for name in dict.fromkeys(name for step in steps for name in step.decisions):
        decisions = [step.decisions[name] for step in steps if name in step.decisions]
        for words, chosen in (("drafted", True), ("left out", False)):
            some = [decision for decision in decisions if (decision.run and not decision.declined) == chosen]
            if some:
                gain, cost = (float(np.mean([getattr(each, what) for each in some])) for what in ("gain", "cost"))
                lines.append(
                    f"{name} {words} in {len(some)} of {len(decisions)} steps: "
                    f"expected to add {gain:.2f} tokens for the time of {cost:.2f}"
                )
    return lines


def _reason(decision: GateDecision) -> str:
    why = f"should add {decision.gain:.2f} tokens to {decision.expected:.2f} for the time of {decision.cost:.2f}"
    if decision.declined:
        return "run, without a draft"
    return f"{'tried again' if decision.explored else 'drafted' if decision.run else 'left out'} ({why})"
