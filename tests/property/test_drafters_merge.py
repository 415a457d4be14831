"""The merge of trees: a trie, parents first, no sibling twice, scores falling."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datastore.draft_tree import DraftTree
from serving.drafters.merge import merge
from tests.drafting_oracle import Path, nodes
from tests.drafting_oracle import merge as expected_merge


@st.composite
def scored_trees(draw: st.DrawFn) -> DraftTree:
    """A tree as drafters score it: no child above its parent, in any order with parents first, maybe siblings twice."""
    source = draw(st.sampled_from([1, 2, 4]))
    rows: dict[Path, int] = {}
    parents: list[int] = []
    tokens: list[int] = []
    scores: list[float] = []
    for path in draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), max_size=12)):
        twice = draw(st.booleans())
        for depth in range(1, len(path) + 1):
            if path[:depth] in rows and not (twice and depth == len(path)):
                continue
            parents.append(rows[path[: depth - 1]] if depth > 1 else -1)
            above = scores[parents[-1]] if depth > 1 else 1.0
            rows[path[:depth]] = len(tokens)
            tokens.append(path[depth - 1])
            scores.append(float(np.float32(above * draw(st.sampled_from([0.0, 0.25, 0.5, 0.8, 1.0])))))
    return DraftTree(
        np.array(tokens, np.int32),
        np.array(parents, np.int32),
        np.array(scores, np.float32),
        np.full(len(tokens), source, np.uint8),
    )


@given(st.lists(scored_trees(), max_size=4), st.integers(0, 30))
def test_the_merge_is_the_best_part_of_the_union(trees: list[DraftTree], max_nodes: int) -> None:
    merged = merge(trees, max_nodes).validate(5)
    assert nodes(merged) == expected_merge(trees, max_nodes)
    assert np.all(np.diff(merged.scores) <= 0)


@given(st.lists(scored_trees(), min_size=2, max_size=3), st.integers(0, 30))
def test_merging_at_once_or_one_after_the_other_is_the_same(trees: list[DraftTree], max_nodes: int) -> None:
    together, apart = (
        merge(each, max_nodes) for each in (trees, [merge([tree], 100) for tree in trees[:1]] + trees[1:])
    )
    assert together.scores.tolist() == apart.scores.tolist()


@given(st.lists(scored_trees(), max_size=3), st.data())
def test_columns_may_be_views(trees: list[DraftTree], data: st.DataObject) -> None:
    step = data.draw(st.sampled_from([-1, 2]))

    def spread(column: np.ndarray) -> np.ndarray:
        return np.repeat(column, 2)[::2] if step == 2 else column[::-1].copy()[::-1]

    views = [DraftTree(*(spread(each) for each in (t.tokens, t.parents, t.scores, t.sources))) for t in trees]
    assert nodes(merge(views, 9)) == nodes(merge(trees, 9))
