"""Plans hierarchies by dynamic programming: which levels draft, and how many tokens each."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.drafters.hierarchy.prediction import predict
from suffolk.serving.drafters.hierarchy.search import search

DEPTH = 15
"""The paper's bound of all draft lengths."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A hierarchy with its predicted speed.

    Attributes:
        names: of its levels, from the bottom to the target; the target alone is plain decoding.
        lengths: the least tokens that each level but the target drafts; one fewer than ``names``.
        seconds: expected seconds a token, surplus tokens included (``predict``).
        speedup: seconds a token of the target alone, divided by ``seconds``.
        tokens: expected tokens a pass of the target.
        objective: what the search minimised: seconds a token without surplus tokens, the paper's L(sigma, T).
    """

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    seconds: float
    speedup: float
    tokens: float
    objective: float

    def __str__(self) -> str:
        drafting = [f"{name}:{length}" for name, length in zip(self.names, self.lengths, strict=False)]
        return " > ".join([*drafting, self.names[-1]])


def best_plan(levels: Levels, depth: int = DEPTH) -> Plan:
    """The fastest of ``plans_by_size``, perhaps plain decoding. Args, Raises: as ``plans_by_size``."""
    return fastest(plans_by_size(levels, depth))


def plans_by_size(levels: Levels, depth: int = DEPTH) -> list[Plan]:
    """The best plans by the objective of 1 level (the target alone), 2, 3, ... levels, as far as more can help. Thread-safe.

    Compare them by ``seconds``, not by the objective (``fastest``).

    Args:
        depth: bound of all lengths; 1..256, and at most 4096 / (levels but the target).

    Raises:
        InvalidArgument: ``depth`` is out of its range.

    Source: "Fast Inference via Hierarchical Speculative Decoding", section 3. For its example (table 1, costs in appendix B.3) the
    paper prints latencies of 33.00, 14.37, 10.89, 10.64, 10.63 and 10.61 for 1 to 6 models. The exact objective is 33, 14.366,
    11.211, 10.657, 10.635 and 10.617 (the last with five levels).
    """
    names, plain = levels.names, float(levels.levels[-1].pass_seconds(0))
    plans = []
    for found in search(levels, depth):
        prediction = predict(levels, found.chosen, found.lengths)
        plans.append(
            Plan(
                names=tuple(names[level] for level in found.chosen),
                lengths=found.lengths,
                seconds=prediction.seconds,
                speedup=plain / prediction.seconds,
                tokens=prediction.tokens,
                objective=found.objective,
            )
        )
    return plans


def fastest(plans: list[Plan]) -> Plan:
    """The plan with the fewest seconds; the first of several."""
    return min(plans, key=lambda plan: plan.seconds)
