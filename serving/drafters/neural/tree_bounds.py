"""Bounds of the tree that a draft model grows."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.engine.checks import whole_within

_BOUNDS = {"max_depth": 64, "width": 64, "children": 64}
OWN_ROWS = 64
"""Cache rows that a drafter's passes for a tree take within the default bounds."""


def rows_behind(max_nodes: int) -> int:
    """Cache rows to reserve behind the longest text, for the target's pass over ``max_nodes`` nodes and a drafter's passes."""
    return max(max_nodes, OWN_ROWS)


@dataclass(frozen=True, slots=True)
class TreeBounds:
    """Bounds of a tree; it ends earlier where a pass of the model is not worth its cost.

    Attributes:
        max_depth: depth of the tree, and the most passes for it; 1..64.
        width: nodes that a pass expands; 1..64. With 1 child it is a chain.
        children: candidates behind a node; 1..64.

    Raises:
        InvalidArgument: a value is no whole number or out of its range.
    """

    max_depth: int = 8
    width: int = 4
    children: int = 4

    def __post_init__(self) -> None:
        for name, most in _BOUNDS.items():
            whole_within(name, getattr(self, name), 1, most)
