"""Occurrences of a pattern: the tokens around them, and how several datastores share a limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.watched_datastore import WatchedDatastore
from tests.support import oracle
from tests.support.brute_force import BruteForceRetriever
from tests.support.stores import make_store, random_documents

VOCABULARY = 9
DOCUMENTS = random_documents(30, 60, 5, VOCABULARY)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    segments = [DOCUMENTS[:20], DOCUMENTS[20:]]
    return make_store(tmp_path_factory.mktemp("stores") / "code", segments, vocab_size=VOCABULARY)


@pytest.mark.parametrize(("context", "before"), [(0, 0), (3, 0), (0, 5), (4, 4), (100, 100)])
def test_windows_are_those_of_the_documents(context: int, before: int, store: Datastore) -> None:
    pattern = DOCUMENTS[0][3:5]
    expected = sorted(
        (document[max(0, end - 2 - before) : end - 2], document[end - 2 : end + context], end - 2)
        for number, end in oracle.occurrences(DOCUMENTS, pattern)
        for document in [DOCUMENTS[number]]
    )
    found = store.occurrences(pattern, 1000, context, before)
    assert sorted((place.before.tolist(), place.tokens.tolist(), place.offset) for place in found) == expected
    assert {place.datastore for place in found} == {"code"}
    assert {place.before.dtype for place in found} == {np.dtype(np.uint32)}
    watched = WatchedDatastore(store.path)
    assert [place.offset for place in watched.occurrences(pattern, 7, context, before)] == [
        place.offset for place in store.occurrences(pattern, 7, context, before)
    ]
    watched.close()


@pytest.mark.parametrize(
    ("counts", "limit", "shares"),
    [
        ([5, 5, 5], 6, [2, 2, 2]),
        ([1, 0, 9], 6, [1, 0, 5]),
        ([1, 2, 3], 100, [1, 2, 3]),
        ([4, 1, 4], 1, [0, 0, 1]),
        ([2, 2, 2], 0, [0, 0, 0]),
    ],
)
def test_several_datastores_share_a_limit(counts: list[int], limit: int, shares: list[int], tmp_path: Path) -> None:
    stores = {
        f"store-{number}": make_store(tmp_path / str(number), [[[1, 2, 3]] * count + [[4]]], vocab_size=VOCABULARY)
        for number, count in enumerate(counts)
    }
    merged = MergedDatastore(stores, [1, 3, 2])
    found = merged.occurrences([1, 2], limit, 1)
    assert [sum(place.datastore == name for place in found) for name in stores] == shares
    assert all(place.tokens.tolist() == [1, 2, 3] for place in found)
    with pytest.raises(InvalidArgument, match="a pattern of 0 tokens; it must have 1 to 64"):
        merged.occurrences([])
    with pytest.raises(Unsupported, match="has no groups"):
        merged.occurrences([1], group="g")


def test_numbers_out_of_range(store: Datastore) -> None:
    with pytest.raises(InvalidArgument, match="before is -1; it must be between 0 and"):
        store.occurrences([1], before=-1)
    with pytest.raises(Unsupported, match="datastore brute-force cannot show occurrences; open its folder"):
        BruteForceRetriever([[1]], 4).occurrences([1])
