"""Why a hybrid drafted as it did: for each step what was retrieved, what was drafted besides or left out, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.accepted_length import reach
from suffolk.serving.drafters.registry import source_name
from suffolk.serving.engine.policy.draft_gate import GateDecision

MOST_STEPS = 100_000
"""Further ones are not kept."""


@dataclass(slots=True)
class ExplainedStep:
    """One step of one request.

    Attributes:
        position: tokens before it.
        retrieved: nodes of the sources of text; decisions: of each addition by its name.
        tree: what was proposed; said: how many tokens the target said behind it; drafted: how many of them the tree had, whether
            they were verified or not.
    """

    position: int
    retrieved: int
    decisions: Mapping[str, GateDecision]
    tree: DraftTree
    said: int = 0
    drafted: int = 0

    def line(self) -> str:
        """For people."""
        parts = [f"at {self.position}: {self.retrieved} nodes retrieved"]
        parts += [f"{name} {_reason(decision)}" for name, decision in self.decisions.items()]
        marks = [source_name(int(bits)) for bits in np.unique(self.tree.sources)]
        parts.append(
            f"{len(self.tree)} proposed ({', '.join(marks) or 'none'}), {self.tree.scores.sum():.2f} tokens expected"
        )
        return "; ".join([*parts, f"{self.said} said, {self.drafted} of them proposed"])


class Explanation:
    """The steps of an engine's requests that proposed, in order. Not thread-safe while an engine runs."""

    def __init__(self) -> None:
        self.steps: list[ExplainedStep] = []
        self._open: dict[int, ExplainedStep] = {}

    def propose(
        self, request_id: int, position: int, retrieved: int, decisions: Mapping[str, GateDecision], tree: DraftTree
    ) -> None:
        """A request's draft."""
        step = self._open[request_id] = ExplainedStep(position, retrieved, decisions, tree)
        if len(self.steps) < MOST_STEPS:
            self.steps.append(step)

    def release(self, request_id: int) -> None:
        """The request has ended."""
        self._open.pop(request_id, None)

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        """What the target said behind it."""
        step = self._open.pop(request_id, None)
        if step is not None:
            step.said, step.drafted = len(tokens), reach(step.tree, tokens)


def summary(steps: Sequence[ExplainedStep]) -> list[str]:
    """For each addition in how many steps it was drafted and left out, with the means of what was expected of it."""
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
        return "asked, and had none"
    return f"{'tried again' if decision.explored else 'drafted' if decision.run else 'left out'} ({why})"
