"""Several datastores, searched as one, answer as a corpus that holds each text as often as the weight of its store."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.merged import MergedDatastore
from suffolk.serving.store.live_store.store import create_live_store
from tests.property.test_retrieval import Documents, corpora, cut, paths, queries
from tests.support import oracle
from tests.support.examples import examples
from tests.support.stores import make_store

VOCABULARY = 5


@examples(60)
@given(
    parts=st.lists(st.tuples(corpora(), st.integers(1, 4)), min_size=1, max_size=3),
    query=queries(),
    pieces=st.sampled_from([1, 3]),
)
def test_answers_are_those_of_one_datastore(
    parts: list[tuple[Documents, int]], query: tuple[list[int], dict[str, int]], pieces: int
) -> None:
    context, bounds = query
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stores = {
            f"store{number}": stack.enter_context(
                make_store(Path(folder) / f"{number}", cut(documents, pieces), vocab_size=VOCABULARY)
            )
            for number, (documents, _) in enumerate(parts)
        }
        merged = MergedDatastore(stores, [weight for _, weight in parts])
        common = np.gcd.reduce([weight for _, weight in parts])  # only the ratios of weights count
        every = [document for documents, weight in parts for document in documents * int(weight // common)]
        limits = [bounds[name] for name in ("max_match", "min_match")]
        assert merged.lookup(context, *limits) == oracle.lookup(every, context, *limits)
        tree = merged.draft(context, **bounds)
        expected = oracle.draft(every, context, *limits, bounds["max_depth"], bounds["max_nodes"])
        assert paths(tree) == expected
        if len(tree):
            counts = np.array([count for _, count in expected])
            np.testing.assert_array_equal(tree.scores, (counts / tree.match_count).astype(np.float32))


def test_deleted_documents_count_in_no_store(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_store(tmp_path / name, [[[1, 2, 3], [1, 2, 4]]], vocab_size=VOCABULARY).close()
    delete(tmp_path / "a", where=["source=segment 0 document 1"])
    with open_datastore(tmp_path / "a") as a, open_datastore(tmp_path / "b") as b:
        merged = MergedDatastore({"a": a, "b": b}, [3, 1])
        assert paths(merged.draft([1, 2])) == [((3,), 4), ((4,), 1)]


@examples(30)
@given(files=corpora(), appended=corpora(), query=queries(), weights=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_a_live_datastore_takes_part(
    files: Documents, appended: Documents, query: tuple[list[int], dict[str, int]], weights: tuple[int, int]
) -> None:
    context, bounds = query
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        static = stack.enter_context(make_store(Path(folder) / "files", [files], vocab_size=VOCABULARY))
        live = stack.enter_context(create_live_store(Path(folder) / "live", vocab_size=VOCABULARY))
        merged = MergedDatastore({"files": static, "live": live}, weights)
        kept = [document for document in appended if document]
        for number, document in enumerate(kept):  # the merged datastore searches what is appended after it was made
            live.append(document, id=f"{number % 2}", group=f"g{number % 3}")
        if len(kept) > 1:
            live.delete(ids=["1"])
        common = int(np.gcd(*weights))
        every = files * (weights[0] // common) + kept[::2] * (weights[1] // common)
        limits = [bounds[name] for name in ("max_match", "min_match")]
        assert merged.lookup(context, *limits) == oracle.lookup(every, context, *limits)
        expected = oracle.draft(every, context, *limits, bounds["max_depth"], bounds["max_nodes"])
        assert paths(merged.draft(context, **bounds)) == expected
        group = [document for number, document in enumerate(kept) if number % 2 == 0 and number % 3 == 0]
        expected = oracle.draft(
            group * (weights[1] // common), context, *limits, bounds["max_depth"], bounds["max_nodes"]
        )
        found = merged.draft_batch([context], **bounds, group="g0", scope="group")
        assert paths(found[0]) == expected
