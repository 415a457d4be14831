"""The merge of trees: a trie, parents first, no sibling twice, scores falling."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datastore.draft_tree import DraftTree
from serving.drafters.merge import merge

Path = tuple[int, ...]


@st.composite
def scored_trees(draw: st.DrawFn) -> DraftTree:
    """A tree as drafters return it: no sibling twice, no child above its parent, sorted by falling score."""
    source = draw(st.sampled_from([1, 2, 4]))
    nodes: dict[Path, float] = {}
    for path in draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5).map(tuple), max_size=12)):
        for depth in range(1, len(path) + 1):
            above = nodes.get(path[: depth - 1], 1.0)
            nodes.setdefault(path[:depth], float(np.float32(above * draw(st.floats(0, 1, width=32)))))
    order = sorted(nodes, key=lambda path: (-nodes[path], len(path), path))
    row = {path: number for number, path in enumerate(order)}
    return DraftTree(
        np.array([path[-1] for path in order], np.int32),
        np.array([row.get(path[:-1], -1) for path in order], np.int32),
        np.array([nodes[path] for path in order], np.float32),
        np.full(len(order), source, np.uint8),
    )


def by_path(tree: DraftTree) -> dict[Path, tuple[float, int]]:
    paths: list[Path] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert len(set(paths)) == len(paths)
    return {path: (float(tree.scores[row]), int(tree.sources[row])) for row, path in enumerate(paths)}


@given(st.lists(scored_trees(), max_size=4), st.integers(0, 30))
def test_the_merge_is_the_best_part_of_the_union(trees: list[DraftTree], max_nodes: int) -> None:
    merged = merge(trees, max_nodes).validate(5)
    found = by_path(merged)
    expected: dict[Path, tuple[float, int]] = {}
    for tree in trees:
        for path, (score, source) in by_path(tree).items():
            old_score, old_source = expected.get(path, (0.0, 0))
            expected[path] = max(score, old_score), source | old_source
    assert len(found) == min(max_nodes, len(expected))
    assert all(expected[path] == value for path, value in found.items())
    assert all(path[:-1] in found or len(path) == 1 for path in found)
    assert np.all(np.diff(merged.scores) <= 0)
    left_out = [score for path, (score, _) in expected.items() if path not in found]
    assert not left_out or not found or max(left_out) <= min(score for score, _ in found.values())
