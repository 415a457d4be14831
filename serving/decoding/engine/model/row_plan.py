"""The rows and the work of a graph pass, as arrays of numbers that the device reads.

A pass's attention is a list of work items. An item is a few rows of one request and a range of pieces, which are runs of
positions with fixed borders. The rows of an item read the same cache rows:

- the rows of a chain share all positions, because token i of a slot lies in cache row i of that slot;
- the rows of a tree share the whole pieces of cached tokens. The pieces after these are read row by row, along the row's path.

Each item leaves one partial result for each of its rows. A row's partial results are numbered in the order of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Internal
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

EVERYWHERE = 1 << 30
"""``linear`` of a row that has no path (``RowPlan.rows``): all its positions lie in consecutive cache rows."""

Numbers = npt.NDArray[np.int64]
ROW_FIELDS = ("ids", "positions", "written", "base", "linear", "path", "first", "parts")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How positions are divided. The order of all sums follows from it.

    Attributes:
        block: number of positions whose products are computed at once.
        piece: number of positions in a piece, a multiple of ``block``.
        group: number of pieces in a group. Their results are merged from the first piece on. So an item of several pieces begins
            with the first piece of a group.
        rows: the most rows of an item.
    """

    rows: int
    block: int = 64
    piece: int = 256
    group: int = 16

    def most_parts(self, rows: int, capacity: int) -> int:
        """Partial results that always suffice for ``rows`` rows of slots of ``capacity`` tokens."""
        own = -(-rows // self.piece) + 1  # pieces of a row's path
        return rows * (-(-capacity // (self.piece * self.group)) + own)


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The numbers of one pass.

    Attributes:
        rows: int64[8, rows], in the order of ``ROW_FIELDS``:
            ids, positions: token ids, and positions in the texts;
            written: the cache row that each row writes;
            base: the cache row of the slot's first token;
            linear: a position p < linear lies in cache row base + p, a later position p in paths[path + p - linear];
            path: where a row's path begins in ``paths``;
            first, parts: the row has ``parts`` partial results, from number ``first`` on.
        items: int64[items, 5]: first row, number of rows, first piece, last piece + 1, number of the partial result.
        paths: int64[...], cache rows.
    """

    rows: Numbers
    items: Numbers
    paths: Numbers


def empty_plan() -> RowPlan:
    """The plan of a pass over no rows."""
    return RowPlan(*(np.empty(shape, np.int64) for shape in ((len(ROW_FIELDS), 0), (0, 5), 0)))


def plan_rows(
    lengths: Numbers, capacity: int, slots: Sequence[int], layouts: Sequence[TreeLayout], sizes: Sizes, parts: int
) -> RowPlan:
    """The plan of a pass over ``layouts``, after the ``lengths`` kept tokens of their ``slots``.

    Args:
        lengths: int64[all slots].
        capacity: cache rows of a slot.
        slots, layouts: one for each request; no layout has ``earlier`` rows.
        parts: partial results that fit, at least ``Sizes.most_parts``. Items have one piece each if their results fit;
            otherwise up to all pieces of a group.

    Raises:
        Internal: the rows of a layout do not fit its slot.
    """
    counts = np.fromiter(map(len, layouts), np.int64, len(layouts))
    kept = lengths[list(slots)]
    if (kept + counts > capacity).any():
        worst = int((kept + counts).argmax())
        raise Internal(f"slot {slots[worst]}: {kept[worst]} rows taken and {counts[worst]} new ones; it has {capacity}")
    starts = _starts(counts)
    request = np.repeat(np.arange(len(counts)), counts)
    cells = np.arange(len(request)) - starts[request]
    ids = np.concatenate([layout.tokens for layout in layouts])
    positions = kept[request] + np.concatenate([layout.depths for layout in layouts])
    base = (np.asarray(slots, np.int64) * capacity)[request]
    branching = np.fromiter((layout.visible is not None for layout in layouts), np.bool_, len(layouts))
    linear = np.where(branching, kept, EVERYWHERE)[request]
    path, paths = _find_paths(layouts, starts, positions - kept[request], base + kept[request], branching[request])
    items, parts_of = _find_items(counts, starts, kept, branching, positions, sizes, parts)
    rows = [ids, positions, base + kept[request] + cells, base, linear, path, _starts(parts_of), parts_of]
    return RowPlan(np.stack(rows), items, paths)


def _find_paths(
    layouts: Sequence[TreeLayout], starts: Numbers, depths: Numbers, cells: Numbers, branching: npt.NDArray[np.bool_]
) -> tuple[Numbers, Numbers]:
    """Where each row's path begins, and the cache rows of all paths, from the root to the row itself.

    ``cells``: the cache row of the first row of each row's request.
    """
    steps = np.where(branching, depths + 1, 0)
    trees = [layout.visible for layout in layouts if layout.visible is not None]
    if not trees:
        return steps, np.empty(0, np.int64)
    widths = np.concatenate([np.full(len(tree), len(tree)) for tree in trees])
    # a row sees its path; parents come before children, so ascending cells are ascending depths
    seen = np.flatnonzero(np.concatenate([tree.ravel() for tree in trees]))
    row = np.repeat(np.arange(len(widths)), steps[branching])
    return _starts(steps), seen - _starts(widths)[row] + cells[branching][row]


def _find_items(
    counts: Numbers,
    starts: Numbers,
    kept: Numbers,
    branching: npt.NDArray[np.bool_],
    positions: Numbers,
    sizes: Sizes,
    parts: int,
) -> tuple[Numbers, Numbers]:
    """The work items, and the number of partial results of each row."""
    tiles = -(-counts // sizes.rows)
    request = np.repeat(np.arange(len(counts)), tiles)
    offset = (np.arange(len(request)) - _starts(tiles)[request]) * sizes.rows
    first, count = starts[request] + offset, np.minimum(sizes.rows, counts[request] - offset)
    whole = kept[request] // sizes.piece  # pieces that all rows of a tree share
    pieces = np.where(branching[request], whole, (kept[request] + offset + count - 1) // sizes.piece + 1)
    row_request = np.repeat(np.arange(len(counts)), counts)
    before = kept[row_request] // sizes.piece
    own = np.where(branching[row_request], positions // sizes.piece - before + 1, 0)
    step = 1 if int(count @ pieces + own.sum()) <= parts else sizes.group
    shared = -(-pieces // step)
    tile, order = _spread(shared)
    begin = order * step
    items = [first[tile], count[tile], begin, np.minimum(begin + step, pieces[tile]), order]
    row, turn = _spread(own)
    shared_of_row = np.repeat(shared, count)
    piece = before[row] + turn
    single = [row, np.ones_like(row), piece, piece + 1, shared_of_row[row] + turn]
    return np.concatenate([np.stack(items, 1), np.stack(single, 1)]), shared_of_row + own


def _spread(counts: Numbers) -> tuple[Numbers, Numbers]:
    """The owner of each entry, and the entry's number within its owner. ``counts`` of [2, 0, 1] give [0, 0, 2] and [0, 1, 0]."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - _starts(counts)[owner]


def _starts(counts: Numbers) -> Numbers:
    """The first index of each run, for runs of ``counts`` entries that follow each other."""
    return np.cumsum(counts) - counts
