"""How large a tree a model grows."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.engine.loop.checks import whole_within

_BOUNDS = {"max_depth": 64, "width": 64, "children": 64}
OWN_ROWS = 64
"""Cache rows that a network's passes for a tree take, within the bounds that they have if nobody gives others."""


def rows_behind(max_nodes: int) -> int:
    """Cache rows to have behind the longest text: for the target's pass over a tree of ``max_nodes``, and before it, in the same
    rows, for a network's over its own; with fewer a network would not draft up to the text's end."""
    return max(max_nodes, OWN_ROWS)


@dataclass(frozen=True, slots=True)
class TreeBounds:
    """Bounds of a tree; within them it ends where a pass of the model promises less than it costs.

    Attributes:
        max_depth: tokens a draft goes ahead, and passes that it takes at most; 1..64.
        width: nodes whose children a pass asks for; 1..64. With 1 child it is a chain.
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
