"""Tests the columns of draft trees, and trees of the first nodes."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted


@pytest.mark.parametrize(
    ("parents", "tokens", "message"),
    [
        ([-1, 1], [1, 2], "node 1 has parent 1"),
        ([-2], [1], "node 0 has parent -2"),
        ([-1], [10], "node 0 has token id 10; the vocabulary has 10 ids"),
        ([-1], [-3], "node 0 has token id -3"),
        ([-1, 0], [1], "parents has 2 entries, tokens has 1"),
    ],
)
def test_what_is_no_tree_is_refused(parents, tokens, message):
    size = len(tokens)
    tree = DraftTree(
        np.array(tokens, np.int32), np.array(parents, np.int32), np.ones(size, np.float32), np.ones(size, np.uint32)
    )
    with pytest.raises(InvalidArgument, match=message):
        tree.validate(10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.array([0.5, np.nan], np.float32)}, "node 1 has score nan; it must be within 0..1"),
        ({"scores": np.array([1.5, 0.5], np.float32)}, "node 0 has score 1.5"),
        ({"scores": np.ones(2)}, "scores is float64 with 1 axes; it must be an array of float32 with one axis"),
        ({"tokens": np.zeros((1, 2), np.int32)}, "tokens is int32 with 2 axes"),
        ({"parents": [-1, 0]}, "parents is list"),
        ({"sources": np.ones(1, np.uint32)}, "sources has 1 entries, tokens has 2"),
    ],
)
def test_columns_that_are_not_as_documented_are_refused(change, message):
    columns = {
        "tokens": np.zeros(2, np.int32),
        "parents": np.array([-1, 0], np.int32),
        "scores": np.ones(2, np.float32),
        "sources": np.ones(2, np.uint32),
    }
    DraftTree(**columns).validate(10)
    DraftTree(**columns, counts=np.ones(9, np.int64)).validate(10)  # only calibration reads them
    with pytest.raises(InvalidArgument, match=message):
        DraftTree(**(columns | change)).validate(10)


def test_a_column_larger_than_memory_is_refused():
    column = np.broadcast_to(np.int32(0), (2**58,))
    with pytest.raises(ResourceExhausted, match="no memory to put the 288230376151711744 entries of tokens in order"):
        DraftTree(column, column, np.ones(1, np.float32), np.ones(1, np.uint32)).validate(10)


def test_head_of_a_tree_is_a_tree():
    tree = DraftTree(
        np.array([1, 2, 3], np.int32), np.array([-1, 0, 1], np.int32), np.ones(3, np.float32), np.ones(3, np.uint32)
    )
    assert tree.head(2).validate(10).depths().tolist() == [1, 2]
    assert tree.head(9) is tree
    assert DraftTree.empty().validate(10).depths().tolist() == []
