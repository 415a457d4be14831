"""Draft trees as bytes: round trips, size limits, malformed trees."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import (
    InvalidArgument,
)
from suffolk.serving.draft_service import limits, wire
from suffolk.serving.proto import draft_pb2
from tests.support.brute_force import BruteForceRetriever, assert_same_tree

VOCABULARY = 50


def test_largest_reply_fits() -> None:
    nodes = limits.MAX_BATCH_NODES // limits.MAX_NODES
    full = DraftTree(
        *(np.ones(limits.MAX_NODES, kind) for kind in (np.int32, np.int32, np.float32, np.uint32, np.uint64))
    )
    reply = draft_pb2.DraftReply(trees=[wire.pack_tree(full)] * nodes)
    assert reply.ByteSize() <= limits.MAX_REPLY_BYTES


def test_trees_survive_the_wire() -> None:
    store = BruteForceRetriever([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 9]], VOCABULARY)
    trees = [store.draft([1, 2]), store.draft([40]), store.draft([2, 3], max_nodes=1)]
    messages = [draft_pb2.DraftTree.FromString(wire.pack_tree(tree).SerializeToString()) for tree in trees]
    for actual, expected in zip(wire.unpack_trees(messages, [64, 64, 1], 16, VOCABULARY), trees, strict=True):
        assert_same_tree(actual, expected)
    assert wire.unpack_trees([], [], 16, VOCABULARY) == []


@settings(max_examples=200)
@given(st.data())
def test_malformed_trees_are_rejected_or_valid(data: st.DataObject) -> None:
    def tree() -> draft_pb2.DraftTree:
        size = data.draw(st.integers(0, 4))
        small = st.one_of(st.integers(-2, 4), st.sampled_from([VOCABULARY - 1, VOCABULARY, -(1 << 31), (1 << 31) - 1]))
        ints = st.lists(small, min_size=size, max_size=size).map(lambda values: np.array(values, "<i4").tobytes())
        chances = st.sampled_from([0.0, 0.5, 1.0, 1.5, -0.5, float("nan"), float("inf")])
        floats = st.lists(chances, min_size=size, max_size=size).map(lambda values: np.array(values, "<f4").tobytes())
        junk = st.binary(max_size=9)
        return draft_pb2.DraftTree(
            tokens=data.draw(st.one_of(ints, junk)),
            parents=data.draw(st.one_of(ints, ints, junk)),
            scores=data.draw(st.one_of(floats, junk)),
            counts=data.draw(st.one_of(st.just(bytes(8 * size)), junk)),
            match_length=data.draw(st.integers(0, 4)),
        )

    messages = [tree() for _ in range(data.draw(st.integers(0, 3)))]
    budgets = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    try:
        trees = wire.unpack_trees(messages, budgets, 3, VOCABULARY)
    except InvalidArgument:
        return
    assert len(trees) == len(budgets)
    for sound, budget in zip(trees, budgets, strict=True):
        assert len(sound.validate(VOCABULARY)) <= budget
        assert sound.match_length <= 3
        assert np.all((sound.scores >= 0) & (sound.scores <= 1))
