"""Tests rows, masks, cuts and acceptance of one tree, against definitions that walk the tree node by node."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.model.tree_attention import Span
from suffolk.serving.decoding.engine.model.tree_layout import chain, cut, lay_out
from suffolk.serving.decoding.engine.sampling.verification.match import accept
from tests.support.drafters import random_tree, tree


def ancestors(draft: DraftTree, node: int) -> list[int]:
    path = [node]
    while draft.parents[path[-1]] >= 0:
        path.append(int(draft.parents[path[-1]]))
    return path


@pytest.mark.parametrize("seed", range(8))
def test_a_row_sees_its_ancestors_and_no_other(seed: int) -> None:
    draft = random_tree(np.random.default_rng(seed), 25, 50)
    layout = lay_out(7, draft)
    assert layout.tokens.tolist() == [7, *draft.tokens.tolist()]
    assert layout.visible is not None
    assert layout.visible[0].tolist() == [True] + [False] * 25
    for node in range(25):
        path = ancestors(draft, node)
        assert layout.depths[node + 1] == len(path)
        assert np.flatnonzero(layout.visible[node + 1]).tolist() == sorted([0] + [each + 1 for each in path])


@pytest.mark.parametrize("window", [None, 1, 3, 6, 100])
@pytest.mark.parametrize("branching", [True, False])
def test_the_mask_is_by_position_within_the_window(window: int | None, branching: bool) -> None:
    layout = lay_out(7, random_tree(np.random.default_rng(1), 12, 50)) if branching else chain(np.arange(13))
    skipped, mask = Span(layout, 0, 0, 5).mask(window, 2, torch.float64, torch.device("cpu"))
    positions = list(range(5)) + [5 + int(depth) for depth in layout.depths]
    assert mask is not None
    for row in range(13):
        for column in range(5 + 13):
            near = window is None or positions[column] > positions[5 + row] - window
            visible = column < 5 or (column - 5 <= row if layout.visible is None else layout.visible[row, column - 5])
            for fold in (0, 13):
                seen = column >= skipped and bool(mask[fold + row, column - skipped] == 0)
                assert seen == (near and visible)


def test_one_row_needs_no_mask() -> None:
    layout = lay_out(7, DraftTree.empty())
    assert layout.tokens.tolist() == [7]
    assert Span(layout, 0, 0, 3).mask(None, 1, torch.float32, torch.device("cpu")) == (0, None)
    assert Span(layout, 0, 0, 30).mask(7, 1, torch.float32, torch.device("cpu")) == (24, None)


def test_a_draft_without_branches_is_a_chain() -> None:
    layout = lay_out(7, tree([1, 2, 3], [-1, 0, 1]))
    assert layout.visible is None
    assert layout.depths.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("depth", [0, 1, 2, 30])
def test_cut_keeps_exactly_the_paths_up_to_the_depth(seed: int, depth: int) -> None:
    draft = random_tree(np.random.default_rng(seed), 20, 50)

    def paths(of: DraftTree) -> list[tuple[int, ...]]:
        return [tuple(int(of.tokens[each]) for each in ancestors(of, node)) for node in range(len(of))]

    assert paths(cut(draft, depth).validate(50)) == [path for path in paths(draft) if len(path) <= depth]


def test_accept_follows_the_draws_and_stops_at_the_first_mismatch() -> None:
    draft = tree([4, 5, 6, 7, 8], [-1, -1, 1, 2, 0])
    assert accept(draft.tokens, draft.parents, np.array([5, 0, 6, 7, 9, 0])).tolist() == [1, 2, 3]
    assert accept(draft.tokens, draft.parents, np.array([5, 8, 8, 7, 9, 0])).tolist() == [1]
    assert accept(draft.tokens, draft.parents, np.array([9, 8, 8, 7, 9, 0])).tolist() == []
    assert accept(draft.tokens[:0], draft.parents[:0], np.array([9])).tolist() == []


def test_accept_takes_the_first_of_two_equal_siblings() -> None:
    draft = tree([5, 5, 6], [-1, -1, 1])
    assert accept(draft.tokens, draft.parents, np.array([5, 6, 6, 0])).tolist() == [0]
