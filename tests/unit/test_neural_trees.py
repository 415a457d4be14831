"""What neural drafters share: growing trees, confidence, and whether a pass pays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from datastore.draft_tree import Source
from serving.decoding.cost_model import CostModel
from serving.drafters.neural.confidence import Confidence
from serving.drafters.neural.growing_tree import ROOT, GrowingTree
from serving.drafters.neural.pay import Pay


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
        best = tree.best(size, Source.EAGLE)
        best.validate(50)
        assert len(best) == min(size, len(tree))
        assert np.all(np.diff(best.scores) <= 0)
        assert sorted(best.scores.tolist()) == pytest.approx(sorted(np.sort(tree.values)[::-1][:size].tolist()))
        paths = [tuple(best.tokens[[*_up(best.parents, node)][::-1]].tolist()) for node in range(len(best))]
        kept = {path(tree, node): tree.values[node] for node in range(len(tree))}
        assert [kept[each] for each in paths] == pytest.approx(best.scores.tolist())
        assert set(best.sources.tolist()) <= {int(Source.EAGLE)}


def _up(parents: np.ndarray, node: int) -> itertools.chain:
    while node >= 0:
        yield node
        node = int(parents[node])


def test_children_share_what_their_parent_has() -> None:
    tree = GrowingTree()
    first = tree.expand(np.array([ROOT]), np.array([[5, 6]]), np.array([[0.9, 0.6]]))  # more than 1 in all
    assert tree.values.tolist() == pytest.approx([0.6, 0.4])
    tree.expand(first[1:], np.array([[7, 8]]), np.array([[0.5, 0.25]]))
    assert tree.values[2:].tolist() == pytest.approx([0.2, 0.1])
    assert tree.depths.tolist() == [1, 1, 2, 2]


def test_leaves_are_taken_by_value_and_not_beyond_the_depth() -> None:
    tree = GrowingTree()
    tree.expand(np.array([ROOT]), np.array([[1, 2, 3]]), np.array([[0.2, 0.5, 0.3]]))
    assert tree.best_leaves(2, 5).tolist() == [1, 2]
    tree.expand(np.array([1]), np.array([[4, 5, 6]]), np.array([[0.9, 0.05, 0.05]]))
    assert tree.best_leaves(2, 5).tolist() == [2, 3]
    assert tree.best_leaves(9, 2).tolist() == [0, 2]  # what is 2 deep stays without children


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
    assert confidence.chances(own, depths + 1, False)[0] == pytest.approx(0.6)  # other depths, other draws
    assert confidence.chances(own, depths, True)[0] == pytest.approx(0.6)


def test_a_pass_pays_while_it_promises_more_than_it_takes() -> None:
    pay, contexts = Pay(CostModel([1, 8], [1.0, 2.0])), np.array([10])
    assert pay.pays(0.5, 10.0, 1, contexts)
    assert not pay.pays(0.5, 3.0, 1, contexts)  # 0.6 of its best candidates are taken, they say at first
    assert pay.pays(0.01, 0.0, 1, contexts)  # nobody knows
    for _ in range(300):
        pay.learn(True)
    assert pay.pays(0.5, 3.0, 1, contexts)
    assert not pay.pays(0.5, 3.0, 8, contexts)


def test_a_draft_that_never_pays_is_tried_now_and_then() -> None:
    pay, contexts = Pay(CostModel([1], [1.0])), np.array([10])
    begun = [pay.begins(0.5, 1, contexts) for _ in range(303)]
    assert [number for number, each in enumerate(begun) if each] == [100, 201, 302]
