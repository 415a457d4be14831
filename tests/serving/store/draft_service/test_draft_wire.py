"""Batches as columns: round trips, size limits, malformed columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore import limits
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import (
    InvalidArgument,
)
from suffolk.serving.net.messages import columns
from suffolk.serving.net.proto import draft_pb2
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.examples import examples

VOCABULARY = 50


def test_largest_reply_fits() -> None:
    nodes = limits.MAX_BATCH_NODES // limits.MAX_NODES
    full = DraftTree(
        *(np.ones(limits.MAX_NODES, kind) for kind in (np.int32, np.int32, np.float32, np.uint32, np.uint64))
    )
    assert columns.pack_trees([full] * nodes).ByteSize() <= limits.MAX_REPLY_BYTES


def test_trees_survive_the_wire() -> None:
    store = BruteForceRetriever([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 9]], VOCABULARY)
    trees = [store.draft([1, 2]), store.draft([40]), store.draft([2, 3], max_nodes=1)]
    reply = draft_pb2.DraftReply.FromString(columns.pack_trees(trees).SerializeToString())
    for actual, expected in zip(columns.unpack_trees(reply, [64, 64, 1], 16, VOCABULARY), trees, strict=True):
        assert_same_tree(actual, expected)
    assert columns.unpack_trees(draft_pb2.DraftReply(), [], 16, VOCABULARY) == []


@given(
    st.lists(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=20), max_size=8),
    st.integers(1, 20),
    st.lists(st.integers(0, limits.MAX_NODES), max_size=8),
)
def test_requests_survive_the_wire(contexts: list[list[int]], max_match: int, sizes: list[int]) -> None:
    sent = draft_pb2.DraftRequest(max_nodes=columns.pack_sizes(sizes), **columns.pack_contexts(contexts, max_match))
    request = draft_pb2.DraftRequest.FromString(sent.SerializeToString())
    assert [each.tolist() for each in columns.unpack_contexts(request)] == [each[-max_match:] for each in contexts]
    expected = sizes if len(sizes) > 1 else [*sizes, 64][0]  # one number is for all, and 64 is the default
    assert columns.unpack_max_nodes(request.max_nodes) == expected


@examples(200)
@given(st.data())
def test_malformed_trees_are_rejected_or_valid(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 3), max_size=3))
    nodes, queries = sum(sizes), len(sizes)
    junk = st.binary(max_size=9)

    def column(values: st.SearchStrategy[Any], kind: str, size: int) -> bytes:
        whole = st.lists(values, min_size=size, max_size=size).map(lambda found: np.array(found, kind).tobytes())
        return data.draw(st.one_of(whole, whole, whole, junk))

    ids = st.one_of(st.integers(-2, 4), st.sampled_from([VOCABULARY - 1, VOCABULARY, -(1 << 31), (1 << 31) - 1]))
    reply = draft_pb2.DraftReply(
        tokens=column(ids, "<i4", nodes),
        parents=column(st.integers(-2, 2), "<i4", nodes),
        scores=column(st.sampled_from([0.0, 0.5, 1.0, 1.5, -0.5, float("nan"), float("inf")]), "<f4", nodes),
        counts=column(st.integers(0, 9), "<u8", nodes),
        sizes=data.draw(st.one_of(st.just(columns.pack_sizes(sizes)), junk)),
        match_lengths=column(st.integers(0, 4), "<u4", queries),
        match_counts=column(st.integers(0, 9), "<u8", queries),
    )
    budgets = data.draw(st.lists(st.integers(0, 5), max_size=3))
    try:
        trees = columns.unpack_trees(reply, budgets, 3, VOCABULARY)
    except InvalidArgument:
        return
    assert len(trees) == len(budgets)
    for sound, budget in zip(trees, budgets, strict=True):
        assert len(sound.validate(VOCABULARY)) <= budget
        assert sound.match_length <= 3
        assert np.all((sound.scores >= 0) & (sound.scores <= 1))
