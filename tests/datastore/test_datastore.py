"""Tests queries with bad input, closed datastores, and generations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument, NotFound, Unavailable
from suffolk.datastore.manifest import publish, read_manifest
from suffolk.datastore.request_texts import ContextIndex
from tests.support.stores import make_store


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store", [[[1, 2, 3, 4], [1, 2, 5]]], vocab_size=10)


@pytest.mark.parametrize(
    ("ids", "bounds", "message"),
    [
        ([1, 10], {}, "token id 10 at index 1 is out of range; the vocabulary has 10 ids"),
        (np.array([-1]), {}, "token id -1 at index 0 is out of range"),
        ([1.5], {}, "index 0 is 1.5, not an integer"),
        (["a"], {}, "index 0 is 'a', not an integer"),
        ("12", {}, "of type str; token ids are a list of integers"),
        (np.zeros((2, 2), int), {}, "one-dimensional array of integers"),
        (np.array([1.0]), {}, "one-dimensional array of integers"),
        ([1], {"max_match": 55}, r"max_match \+ max_depth is 65, above the order depth 64"),
        ([1], {"min_match": 0}, "min_match is 0"),
        ([1], {"min_match": 5, "max_match": 4}, "max_match is 4, below min_match 5"),
        ([1], {"max_depth": 0}, "max_depth is 0"),
        ([1], {"max_nodes": -1}, "max_nodes is -1"),
        ([1], {"max_nodes": 70_000}, "max_nodes is 70000; the limit is 65536"),
        ([1], {"max_nodes": [1, 2]}, "max_nodes has 2 entries for 1 contexts"),
    ],
)
def test_bad_queries_are_refused(store, ids, bounds, message):
    with pytest.raises(InvalidArgument, match=message):
        store.draft_batch([ids], **bounds)


def test_ids_may_come_as_any_integers(store):
    expected = store.draft([1, 2]).tokens.tolist()
    for ids in (
        (1, 2),
        np.array([1, 2], np.int32),
        np.array([9, 1, 2], np.uint16)[1:],
        np.array([1, 0, 2], np.int64)[::2],
    ):
        assert store.draft(ids).tokens.tolist() == expected
    assert store.lookup([]) == (0, 0)
    assert len(store.draft([])) == 0
    assert store.draft_batch([]) == []


def test_a_lookup_may_use_the_whole_order_depth(store):
    assert store.lookup([1, 2], max_match=64) == (2, 2)
    with pytest.raises(InvalidArgument, match="max_match is 65, above the order depth 64 of the datastore; lower it"):
        store.lookup([1, 2], max_match=65)


def test_scores_are_shares_and_budgets_may_differ(store):
    trees = store.draft_batch([[1, 2], [1, 2], [7]], max_nodes=[1, 3, 9])
    assert [len(tree) for tree in trees] == [1, 3, 0]
    assert trees[1].tokens.tolist() == [3, 5, 4]
    assert trees[1].scores.tolist() == [0.5, 0.5, 0.5]
    assert trees[1].depths().tolist() == [1, 1, 2]


def test_a_reader_keeps_the_generation_it_opened(tmp_path):
    old = make_store(tmp_path / "store", [[[1, 2, 3]], [[1, 2, 4]]], vocab_size=10)
    manifest = read_manifest(tmp_path / "store")
    publish(tmp_path / "store", replace(manifest, generation=2, segments=manifest.segments[1:]))
    (tmp_path / "store/segments/000000.seg").unlink()
    assert old.lookup([1, 2]) == (2, 2)
    new = open_datastore(tmp_path / "store")
    assert (new.info()["generation"], new.lookup([1, 2])) == (2, (2, 1))
    old.close()
    with pytest.raises(Unavailable, match="is closed"):
        old.lookup([1])


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.lookup([1]),
        lambda store: store.draft([1]),
        lambda store: store.occurrences([1]),
        lambda store: list(store.documents()),
        lambda store: list(store.origins()),
        lambda store: store.read_document("000000.seg", 0),
        lambda store: store.deleted(),
        lambda store: list(store.deletion_origins()),
        lambda store: store.info(),
        lambda store: store.resident_bytes(),
        lambda store: store.verify(),
    ],
)
def test_a_closed_datastore_says_so(store, ask):
    """Regression: some calls of a closed datastore used to raise Python errors, and others answered like an empty datastore."""
    store.close()
    with pytest.raises(Unavailable, match="store is closed; open it again"):
        ask(store)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda store: store.lookup([1], max_match="3"), "max_match is '3', of type str; it must be a whole number"),
        (lambda store: store.draft([1], max_nodes=2.5), "max_nodes is 2.5, of type float; it must be a whole number"),
        (
            lambda store: store.draft_batch([[1]], max_nodes=True),
            "max_nodes is True, of type bool; give a whole number",
        ),
        (lambda store: store.draft_batch([[1]], max_nodes=[True]), "is True, of type bool; it must be a whole number"),
        (lambda store: store.draft([1], max_depth=None), "max_depth is None, of type NoneType"),
        (lambda store: store.decode(5), r"ids is 5; give a sequence of token ids, such as \[5\]"),
    ],
)
def test_an_argument_of_another_type_is_named(store, ask, message):
    with pytest.raises(InvalidArgument, match=message):
        ask(store)


def test_a_datastore_shows_its_name_and_vocabulary(store):
    assert repr(store) == f"Datastore({store.name!r}, vocab_size={store.vocab_size})"


def test_a_document_that_is_not_there_is_named(store):
    with pytest.raises(NotFound, match=r"has no live segment 'other.seg'; suffolk info lists them"):
        store.read_document("other.seg", 0)
    with pytest.raises(InvalidArgument):
        store.read_document("000000.seg", 99)
    with pytest.raises(InvalidArgument):
        store.read_document("000000.seg", -1)


@pytest.mark.parametrize("bounds", [{"limit": -1}, {"limit": 2**64}, {"context": -1}])
def test_bounds_of_occurrences_are_checked(store, bounds):
    """Regression: negative numbers used to raise an error of the binding."""
    ((name, value),) = bounds.items()
    with pytest.raises(InvalidArgument, match=f"^{name} is {value}; it must be between 0 and 4294967294$"):
        store.occurrences([1, 2], **bounds)
    assert [found.tokens.tolist() for found in store.occurrences([1, 2], 2**32 - 2, 0)] == [[1, 2], [1, 2]]


def test_no_datastore_says_how_to_build_one(tmp_path):
    with pytest.raises(NotFound, match="nothing is no datastore: there is no such folder; .*suffolk build"):
        open_datastore(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(NotFound, match="file is no datastore: it is no folder; .*suffolk build"):
        open_datastore(tmp_path / "file")
    with pytest.raises(NotFound, match="is no datastore: it has no MANIFEST; .*suffolk build"):
        open_datastore(tmp_path)


def test_context_index_refuses_foreign_ids_whole():
    index = ContextIndex(vocab_size=5)
    index.append([1, 2])
    with pytest.raises(InvalidArgument, match="token id 5"):
        index.append([1, 5])
    assert len(index) == 2
    with pytest.raises(InvalidArgument, match="cannot keep 3 tokens of a context of 2"):
        index.truncate(3)
