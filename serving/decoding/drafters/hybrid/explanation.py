"""Explains the gates of a hybrid: how often each neural drafter drafted, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from suffolk.serving.decoding.engine.policy.draft_gate import GateDecision


@dataclass(slots=True)
class _Sum:
    """Sums over the steps with one outcome."""

    steps: int = 0
    gain: float = 0.0
    cost: float = 0.0


@dataclass(slots=True)
class Explanation:
    """Sums of the gates' decisions on neural drafters. Not thread-safe. Read it only while the engine is idle.

    Attributes:
        sums: neural drafter -> whether it drafted -> sums over these steps.
    """

    sums: dict[str, dict[bool, _Sum]] = field(default_factory=dict)

    def add(self, name: str, decision: GateDecision) -> None:
        """Add a decision of the gate of the neural drafter ``name``."""
        found = self.sums.setdefault(name, {True: _Sum(), False: _Sum()})[decision.run]
        found.steps += 1
        found.gain += decision.gain
        found.cost += decision.cost

    def lines(self) -> list[str]:
        """For each neural drafter: the steps in which it drafted or was left out, with the mean expected gain and cost."""
        lines = []
        for name, outcomes in self.sums.items():
            total = sum(each.steps for each in outcomes.values())
            for words, each in (("drafted", outcomes[True]), ("left out", outcomes[False])):
                if each.steps:
                    lines.append(
                        f"{name} {words} in {each.steps} of {total} steps: expected to add {each.gain / each.steps:.2f} tokens "
                        f"for the time of {each.cost / each.steps:.2f}"
                    )
        return lines
