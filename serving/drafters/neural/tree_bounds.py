"""Bounds of the tree that a draft model grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from suffolk.serving.engine.checked_fields import Within, check_fields

OWN_ROWS = 64
"""Cache rows that a drafter's passes for a tree take within the default bounds."""


def rows_behind(max_nodes: int) -> int:
    """Cache rows to reserve behind the longest text, for the target's pass over ``max_nodes`` nodes and a drafter's passes."""
    return max(max_nodes, OWN_ROWS)


@dataclass(frozen=True, slots=True)
class TreeBounds:
    """Bounds of a tree; it ends earlier where a pass of the model is not worth its cost. Raises as ``check_fields``.

    Attributes:
        max_depth: depth of the tree, and the most passes for it.
        width: nodes that a pass expands. With 1 child it is a chain.
        children: candidates behind a node.
    """

    max_depth: Annotated[int, Within(1, 64)] = 8
    width: Annotated[int, Within(1, 64)] = 4
    children: Annotated[int, Within(1, 64)] = 4

    def __post_init__(self) -> None:
        check_fields(self)
