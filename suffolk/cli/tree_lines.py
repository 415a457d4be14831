"""Draws a draft tree as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

DIM = "dim"
"""Style of what stands beside the texts."""
_LINES = ("├─ ", "└─ ", "│  ")
_ASCII = ("|- ", "`- ", "|  ")


@dataclass(frozen=True, slots=True)
class DrawnTree:
    """A tree to draw, parents before children.

    Attributes:
        parents: of each node; -1 for a root.
        counts, texts: of each node.
        shares: of each node, 0..1.
        datastores: the counts of each node by datastore; empty for a single datastore.
        ascii: whether to draw without box characters.
    """

    parents: Sequence[int]
    counts: Sequence[int]
    texts: Sequence[str]
    shares: Sequence[float]
    datastores: Mapping[str, Sequence[int]]
    ascii: bool = False

    def lines(self, shown: Sequence[int]) -> Iterator[Text]:
        """A line for each of the nodes ``shown``, whose ancestors are shown too.

        A node and its only shown child share a line if they have the same count.
        """
        children: dict[int, list[int]] = {}
        for node in sorted(shown):
            children.setdefault(self.parents[node], []).append(node)
        yield from self._branches(children, -1, "")

    def _branches(self, children: Mapping[int, list[int]], parent: int, indent: str) -> Iterator[Text]:
        fork, end, trunk = _ASCII if self.ascii else _LINES
        nodes = children.get(parent, [])
        for node in nodes:
            run = [node]
            while len(after := children.get(run[-1], [])) == 1 and self.counts[after[0]] == self.counts[node]:
                run += after
            is_last = node == nodes[-1]
            yield self._line(run, indent + (end if is_last else fork))
            yield from self._branches(children, run[-1], indent + ("   " if is_last else trunk))

    def _line(self, run: Sequence[int], guide: str) -> Text:
        texts = [self.texts[node] for node in run]
        text = "".join([*(each for each in texts[:-1] if each != "\ufffd"), texts[-1]])  # parts of a character
        held = [f"{name} {counts[run[0]]:,}" for name, counts in self.datastores.items() if counts[run[0]]]
        line = Text(f"  {self.counts[run[0]]:>10,}  ")
        line.append(f"{self.shares[run[-1]]:6.1%}  {guide}", DIM).append(repr(text))
        return line.append(f"  ({', '.join(held)})" if held else "", DIM)
