"""Tests the shared parts of neural drafters: tree expansion, confidence, and the decision on a pass."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.neural.draft_model.drafter import BOUNDS
from suffolk.serving.decoding.drafters.neural.eagle.drafter import BOUNDS as EAGLE_BOUNDS
from suffolk.serving.decoding.drafters.neural.growing_tree import ROOT, GrowingTree
from suffolk.serving.decoding.drafters.neural.tree_bounds import OWN_ROWS, TreeBounds, rows_behind
from suffolk.serving.decoding.drafters.registry import source_bits


def grown(seed: int, passes: int = 5, width: int = 3, children: int = 3) -> GrowingTree:
    rng = np.random.default_rng(seed)
    tree = GrowingTree()
    nodes = np.array([ROOT])
    for _ in range(passes):
        size = (len(nodes), children)
        tokens = np.stack([rng.choice(50, children, replace=False) for _ in nodes])
        tree.expand(nodes, tokens, rng.random(size))
        nodes = tree.best_leaves(width, 20)
    return tree


def path(tree: GrowingTree, node: int) -> tuple[int, ...]:
    return tuple(tree.tokens[tree.ancestors(np.array([node]))[0][::-1]].tolist())


@pytest.mark.parametrize("seed", range(8))
def test_the_best_nodes_hang_together_and_are_the_best(seed: int) -> None:
    tree = grown(seed)
    for size in (0, 1, 7, 20, 1000):
        best = tree.best(size, source_bits("eagle"))
        best.validate(50)
        assert len(best) == min(size, len(tree))
        assert np.all(np.diff(best.scores) <= 0)
        assert sorted(best.scores.tolist()) == pytest.approx(sorted(np.sort(tree.values)[::-1][:size].tolist()))
        paths = [tuple(best.tokens[[*_up(best.parents, node)][::-1]].tolist()) for node in range(len(best))]
        kept = {path(tree, node): tree.values[node] for node in range(len(tree))}
        assert [kept[each] for each in paths] == pytest.approx(best.scores.tolist())
        assert set(best.sources.tolist()) <= {source_bits("eagle")}


def _up(parents: np.ndarray, node: int) -> itertools.chain:
    while node >= 0:
        yield node
        node = int(parents[node])


def test_children_share_what_their_parent_has() -> None:
    tree = GrowingTree()
    tree.expand(np.array([ROOT]), np.array([[5, 6]]), np.array([[0.9, 0.6]]))  # more than 1 in total
    assert tree.values.tolist() == pytest.approx([0.6, 0.4])
    tree.expand(np.array([1]), np.array([[7, 8]]), np.array([[0.5, 0.25]]))
    assert tree.values[2:].tolist() == pytest.approx([0.2, 0.1])
    assert tree.depths.tolist() == [1, 1, 2, 2]


def test_leaves_are_taken_by_value_and_not_beyond_the_depth() -> None:
    tree = GrowingTree()
    tree.expand(np.array([ROOT]), np.array([[1, 2, 3]]), np.array([[0.2, 0.5, 0.3]]))
    assert tree.best_leaves(2, 5).tolist() == [1, 2]
    tree.expand(np.array([1]), np.array([[4, 5, 6]]), np.array([[0.9, 0.05, 0.05]]))
    assert tree.best_leaves(2, 5).tolist() == [2, 3]
    assert tree.best_leaves(9, 2).tolist() == [0, 2]  # what is 2 deep stays without children


def test_what_has_no_value_is_not_asked_behind() -> None:
    """Regression: a NaN in one text used to prevent the pass for all texts."""
    tree = GrowingTree()
    tree.expand(np.array([ROOT]), np.array([[1, 2, 3]]), np.array([[0.2, 0.5, 0.3]]))
    tree.expand(np.array([1]), np.array([[4, 5]]), np.array([[np.nan, np.nan]]))
    assert tree.best_leaves(9, 5).tolist() == [0, 2]
    assert tree.best_leaves(9, 5, deepest=True).tolist() == []


def test_a_text_is_followed_as_far_as_there_are_nodes() -> None:
    tree = grown(3)
    deepest = int(np.argmax(tree.depths))
    tokens = np.array([*path(tree, deepest), 99], np.int32)
    assert tree.follow(tokens).tolist() == tree.ancestors(np.array([deepest]))[0][::-1]
    assert tree.follow(np.array([99], np.int32)).tolist() == []


def test_confidence_goes_from_the_drafter_s_word_to_what_was_seen() -> None:
    confidence, own, depths = Confidence(), np.full(50, 0.6), np.ones(50, np.int64)
    assert confidence.chances(own, depths, False)[0] == pytest.approx(0.6)
    for _ in range(20):
        confidence.learn(own, depths, False, np.arange(50) < 10)
    assert confidence.chances(own, depths, False)[0] == pytest.approx(0.2, abs=0.02)
    assert confidence.chances(own, depths + 1, False)[0] == pytest.approx(
        0.2, abs=0.02
    )  # overconfidence applies there too
    assert confidence.chances(own, depths, True)[0] == pytest.approx(0.6)  # other samples


def test_who_is_certain_and_never_right_is_soon_not_heard() -> None:
    """Regression: a chain of certain but wrong nodes used to displace a tenth of all accepted tokens for 800 steps."""
    confidence, own, depth = Confidence(), np.ones(1), np.ones(1, np.int64)
    for _ in range(20):
        confidence.learn(own, depth, False, np.zeros(1, np.bool_))
    assert confidence.chances(own, depth, False)[0] < 0.1


def test_who_keeps_its_promises_is_believed_where_nothing_was_seen() -> None:
    confidence, own, depth = Confidence(), np.full(10, 0.9), np.ones(1, np.int64)
    for _ in range(20):
        confidence.learn(own, depth, False, np.arange(10) < 9)
    assert confidence.chances(np.full(1, 0.5), depth, False)[0] == pytest.approx(0.5, abs=0.02)


def test_the_example_of_eagle_2_is_grown_as_its_figure_7_shows() -> None:
    """The tree expands the best 2 nodes of each level, reranks all nodes, and keeps the best 8.

    The context's last word is one of the 8.
    """
    words = ["is", "has", "a", "the", "to", "good", "nice", "be", "do"]
    confidences = {
        "It": {"is": 0.6, "has": 0.2},
        "is": {"a": 0.8, "the": 0.1},
        "has": {"to": 0.7, "a": 0.1},
        "a": {"good": 0.7, "nice": 0.1},
        "to": {"be": 0.6, "do": 0.2},
    }
    tree = GrowingTree()
    nodes = np.array([ROOT])
    expanded = []
    for _ in range(3):
        names = ["It" if node == ROOT else words[tree.tokens[node]] for node in nodes.tolist()]
        expanded.append(names)
        children = [confidences[name] for name in names]
        tokens = np.array([[words.index(child) for child in each] for each in children])
        tree.expand(nodes, tokens, np.array([list(each.values()) for each in children]))
        nodes = tree.best_leaves(2, 20, deepest=True)
    assert expanded == [["It"], ["is", "has"], ["a", "to"]]
    assert tree.values.round(2).tolist() == [0.6, 0.2, 0.48, 0.06, 0.14, 0.02, 0.34, 0.05, 0.08, 0.03]
    best = tree.best(7, source_bits("eagle"))
    drafted = [
        (words[token], -1 if at < 0 else words[best.tokens[at]])
        for token, at in zip(best.tokens, best.parents, strict=True)
    ]
    assert sorted(drafted, key=str) == sorted(
        [("is", -1), ("has", -1), ("a", "is"), ("the", "is"), ("to", "has"), ("good", "a"), ("be", "to")], key=str
    )


@pytest.mark.parametrize("seed", range(6))
def test_what_cannot_be_kept_is_not_expanded(seed: int) -> None:
    """The best nodes stay the same, and the passes have fewer rows."""
    trees, rows = [], []
    for kept in (None, 12):
        tree, nodes, read = GrowingTree(), np.array([ROOT]), 0
        for level in range(6):
            rng = np.random.default_rng(seed + level)
            table = rng.random((200, 3)) ** 2  # a node's chances, by its token
            own = tree.tokens[nodes] if level else np.array([0])
            read += len(nodes)
            tree.expand(nodes, (own[:, None] * 7 + np.arange(3)) % 200, table[own])
            nodes = tree.best_leaves(4, 20, deepest=True, kept=kept)
            if not len(nodes):
                break
        trees.append(tree.best(12, source_bits("eagle")))
        rows.append(read)
    assert np.array_equal(trees[0].tokens, trees[1].tokens)
    assert np.array_equal(trees[0].parents, trees[1].parents)
    assert rows[1] < rows[0]


def test_only_the_last_level_is_expanded_if_asked_for() -> None:
    tree = GrowingTree()
    tree.expand(np.array([ROOT]), np.array([[1, 2]]), np.array([[0.5, 0.4]]))
    tree.expand(np.array([0]), np.array([[3, 4]]), np.array([[0.1, 0.2]]))
    assert tree.best_leaves(1, 9).tolist() == [1]
    assert tree.best_leaves(1, 9, deepest=True).tolist() == [3]
    assert tree.best_leaves(5, 2, deepest=True).tolist() == []  # as deep as may be


def test_every_network_s_tree_fits_behind_a_text() -> None:
    for bounds in (TreeBounds(), BOUNDS):
        assert bounds.max_depth * bounds.width <= OWN_ROWS
    assert (EAGLE_BOUNDS.max_depth - 1) * EAGLE_BOUNDS.width <= OWN_ROWS
    assert [rows_behind(nodes) for nodes in (1, 64, 100)] == [64, 64, 100]
