"""Tests the names of the compared drafters, and the drafter that gives the upper bound of hindsight."""

from __future__ import annotations

import numpy as np
import pytest

from research.one_tree.compared_drafters import (
    Sources,
    compared_names,
    make_compared,
    singles,
    useless_names,
)
from research.one_tree.hindsight_drafter import HindsightDrafter, right
from suffolk.benchmarks.decode.bounding_drafters import SOURCE as USELESS
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from tests.support.brute_force import BruteForceRetriever
from tests.support.drafters import MadeUpDrafter, tree

VOCAB = 50


def test_hindsight_drafts_the_longest_correct_path_and_queries_text_after_it() -> None:
    store = BruteForceRetriever([[5, 6, 7, 8, 9]], VOCAB)
    network = MadeUpDrafter(lambda request: tree([4, 5, 6, 3], [-1, 0, 1, 2]))  # correct up to 4 5 6
    network.name = "eagle"
    [drafter] = make_compared(["hindsight: eagle"], Sources(VOCAB, store, networks=[network])).values()
    assert isinstance(drafter, HindsightDrafter)
    drafter.know(np.array([1, 2, 4, 5, 6, 7, 8, 10], np.int32))
    [found] = drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 16)])
    assert found.tokens.tolist() == [4, 5, 6, 7, 8]
    assert found.parents.tolist() == [-1, 0, 1, 2, 3]
    assert found.sources.tolist()[3:] == [source_bits("datastore")] * 2
    assert [len(each) for each in drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 4)])] == [4]
    drafter.know(np.array([1, 2, 11], np.int32))
    assert [len(each) for each in drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 16)])] == [0]
    drafter.observe({1: np.array([11], np.int32)})
    drafter.release(1)
    assert (network.observed, network.released) == ([[11]], [1])


def test_the_longest_correct_path_of_several_trees_counts() -> None:
    tokens, marks = right([tree([1, 2], [-1, 0]), tree([9, 1, 2, 3], [-1, -1, 1, 2])], np.array([1, 2, 3, 4], np.int32))
    assert (tokens.tolist(), len(marks)) == ([1, 2, 3], 3)


def test_every_compared_drafter_can_be_created_and_has_its_name() -> None:
    store = BruteForceRetriever([[1, 2, 3]], VOCAB)
    networks = [MadeUpDrafter(lambda request: DraftTree.empty()), MadeUpDrafter(lambda request: DraftTree.empty())]
    networks[0].name, networks[1].name = "eagle", "redrafter"
    names = [*compared_names(["eagle", "redrafter"], True), *useless_names(True)[1:]]
    made = make_compared(names, Sources(VOCAB, store, store, networks))
    assert list(made) == [
        "datastore", "prompt-lookup", "eagle", "redrafter", "sam-decoding: eagle", "sam-decoding: redrafter",
        "arctic-inference: eagle", "arctic-inference: redrafter", "hybrid: eagle", "hybrid: redrafter", "hybrid",
        "hybrid + useless network", "hybrid + unrelated datastore",
    ]  # fmt: skip
    for drafter in made.values():
        [drafted] = drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 8)])
        assert len(drafted) <= 8
    assert singles(["eagle"], False) == ["prompt-lookup", "eagle"]


@pytest.mark.parametrize("beside", ["eagle", "hierarchy"])
def test_one_tree_merges_a_useless_network(beside: str) -> None:
    right = DraftTree(
        np.array([3], np.int32), np.array([-1], np.int32), np.array([0.5], np.float32), np.array([4], np.uint32)
    )
    network = MadeUpDrafter(lambda request: right)
    network.name = beside
    [drafter] = make_compared(["hybrid + useless network"], Sources(VOCAB, networks=[network])).values()
    [found] = drafter.propose([DraftRequest(1, np.array([1, 2], np.int32), 16)])
    useless = found.sources == USELESS
    assert useless.sum() > 8
    assert found.scores[useless].min() > 0


@pytest.mark.parametrize(
    "name", ["sam-decoding: eagle", "hindsight: eagle", "hindsight", "hybrid + unrelated datastore", "none", "oops"]
)
def test_a_drafter_that_cannot_be_made_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="drafter"):
        make_compared([name], Sources(VOCAB))
