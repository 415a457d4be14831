"""Tests smaller datastores for comparisons, made of the first tokens of another datastore."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.folder import first_tokens
from suffolk.benchmarks.retrieval.contexts import join_documents
from suffolk.benchmarks.retrieval.draftretriever_package import prefixes
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument
from tests.support.stores import make_store, random_documents

VOCAB = 7


def test_prefixes_drop_the_filling() -> None:
    assert prefixes([[1, 2, -2], [1, 3, 4]]) == {(1,), (1, 2), (1, 3), (1, 3, 4)}


def test_first_tokens_are_the_datastores_own(tmp_path: Path) -> None:
    documents = random_documents(20, 30, 1, VOCAB)
    flat = [token for document in documents for token in document]
    with make_store(tmp_path / "store", [documents[:9], documents[9:]], vocab_size=VOCAB) as store:
        path = first_tokens(store, 100, tmp_path / "work")
        again = first_tokens(store, 100, tmp_path / "work")

    assert again == path
    with open_datastore(path) as part:
        tokens, _ = join_documents(part)
        assert tokens.tolist() == flat[:100]


def test_first_tokens_of_stores_that_begin_alike_are_not_mixed_up(tmp_path: Path) -> None:
    """Regression: the cache used to identify datastores by their first segment only."""
    for name, second in (("a", [[4, 5]]), ("b", [[6, 7]])):
        with make_store(tmp_path / name, [[[1, 2, 3]], second], vocab_size=9) as store:
            first = first_tokens(store, 5, tmp_path / "work")
        with open_datastore(first) as part:
            assert [document.tokens.tolist() for document in part.documents()] == [[1, 2, 3], second[0]]


def test_an_empty_store_is_not_measured(tmp_path: Path) -> None:
    with (
        make_store(tmp_path / "store", [[[]]], vocab_size=9) as store,
        pytest.raises(InvalidArgument, match="nothing to measure"),
    ):
        join_documents(store)
