"""Tests the conversion of draft trees to chains and masked trees."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.integrations.flat_draft import best_chain, masked_tree


def random_tree(seed: int, size: int) -> DraftTree:
    rng = np.random.default_rng(seed)
    parents = np.array([rng.integers(-1, node) if node else -1 for node in range(size)], np.int32)
    scores = np.empty(size, np.float32)
    for node, parent in enumerate(parents):
        scores[node] = rng.random() * (1.0 if parent < 0 else scores[parent])
    return DraftTree(rng.integers(0, 9, size).astype(np.int32), parents, scores, np.ones(size, np.uint32))


def path_to(tree: DraftTree, node: int) -> list[int]:
    return [] if node < 0 else [*path_to(tree, int(tree.parents[node])), node]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most", [1, 3, 30])
def test_the_best_chain_has_the_highest_sum(seed: int, most: int) -> None:
    tree = random_tree(seed, 30)
    paths = [path for node in range(30) if len(path := path_to(tree, node)) <= most]
    best = max(float(tree.scores[path].sum()) for path in paths)
    chain = best_chain(tree, most)
    assert chain.validate(9)
    assert chain.parents.tolist() == list(range(-1, len(chain) - 1))
    assert float(chain.scores.sum()) == pytest.approx(best)
    assert chain.tokens.tolist() in [tree.tokens[path].tolist() for path in paths]


def test_no_tree_is_no_chain() -> None:
    assert len(best_chain(DraftTree.empty(), 4)) == 0
    assert len(best_chain(random_tree(0, 5), 0)) == 0


@pytest.mark.parametrize("width", [1, 2, 7, 20])
def test_a_node_sees_its_path(width: int) -> None:
    tree = random_tree(4, 12)
    tokens, mask = masked_tree(tree, 42, width)
    assert tokens[0] == 42
    for node in range(min(12, width - 1)):
        assert np.flatnonzero(mask[node + 1]).tolist() == [0, *(each + 1 for each in path_to(tree, node))]
        assert tokens[node + 1] == tree.tokens[node]
    for unused in range(13, width):
        assert (tokens[unused], np.flatnonzero(mask[unused]).tolist()) == (0, [0, unused])
