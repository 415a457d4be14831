"""The best hierarchy: which levels draft, and how many tokens each hands up, by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.drafters.hierarchy.prediction import predict
from suffolk.serving.drafters.hierarchy.search import search

DEPTH = 15
"""The paper's bound of all lengths."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A hierarchy and what it promises.

    Attributes:
        names: of its levels, from the bottom to the top, the target last; the target alone is plain decoding.
        lengths: tokens that each level but the target hands up at least; one fewer than ``names``.
        seconds: of a token, in expectation, with surplus tokens handed up (``law.predict``).
        speedup: the seconds of a token of the target alone over ``seconds``.
        tokens: of a pass of the target, in expectation.
        objective: what the search minimised, seconds of a token without surplus tokens: the paper's L(sigma, T).
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
    """Of ``plans_by_size`` the one with the fewest predicted seconds; plain decoding, the target alone, is a normal answer.

    Args, Raises: as ``plans_by_size``.
    """
    return fastest(plans_by_size(levels, depth))


def plans_by_size(levels: Levels, depth: int = DEPTH) -> list[Plan]:
    """What each further level adds: the best plans, by the objective, of 1 level (the target alone), of 2, 3, ... levels, as far as
    further levels can be of use. Whether one more level pays is decided by ``seconds``, not by the objective (``fastest``).

    Args:
        depth: bound of all lengths; 1..256, and at most 4096 / (levels but the target).

    Raises:
        InvalidArgument: ``depth`` is out of its range.

    Thread-safe. Source: "Fast Inference via Hierarchical Speculative Decoding", section 3. Of its example (table 1, costs in
    appendix B.3) it prints latencies of 33.00, 14.37, 10.89, 10.64, 10.63 and 10.61 for 1 to 6 models, and speed-ups that do not
    agree with them from three models on. The objective, computed exactly, is 33, 14.366, 11.211, 10.657, 10.635 and 10.617 (which
    with six models is that of five levels).
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
    """The plan of the fewest seconds; the first of several."""
    return min(plans, key=lambda plan: plan.seconds)
