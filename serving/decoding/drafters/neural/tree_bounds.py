"""Bounds of the trees that neural drafters grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from suffolk.datastore.settings import Checked, Within

OWN_ROWS = 64
"""The most cache rows that a drafter's passes need for a tree within the default bounds."""


def rows_behind(max_nodes: int) -> int:
    """The cache rows to reserve after a text, for the target's pass over ``max_nodes`` nodes and for a drafter's passes."""
    return max(max_nodes, OWN_ROWS)


@dataclass(frozen=True, slots=True)
class TreeBounds(Checked):
    """Bounds of a tree. Growth stops earlier if the next pass is not worth its cost. Raises the errors of ``check_fields``.

    Attributes:
        max_depth: depth of the tree, and the most passes for it.
        width: the most nodes that a pass expands. With one child each, the tree is a chain.
        children: candidates after a node.
        max_nodes: the most nodes to propose, chosen from all candidates.
        by_level: whether a pass expands only nodes of the deepest level, as in EAGLE-2; otherwise the best of all leaves.
    """

    max_depth: Annotated[int, Within(1, 64)] = 8
    width: Annotated[int, Within(1, 64)] = 4
    children: Annotated[int, Within(1, 64)] = 4
    max_nodes: Annotated[int, Within(1, 1024)] = 1024
    by_level: bool = False


BOUNDS = TreeBounds()
