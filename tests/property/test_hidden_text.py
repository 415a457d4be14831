"""Under a least number of documents, answers equal those of an oracle that counts documents one by one."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.retriever import Retriever
from suffolk.serving.store.draft_service.disclosure import MinCount
from suffolk.serving.store.live_store.store import create_live_store
from tests.property.test_retrieval import Documents, corpora, cut, paths, queries
from tests.support import oracle
from tests.support.examples import examples
from tests.support.stores import make_store

VOCABULARY = 5
Query = tuple[list[int], dict[str, int]]


def check(store: Retriever, documents: Documents, query: Query, least: int, group: str | None = None) -> None:
    """Compares lookup, draft and occurrences of ``store``, which holds ``documents`` in the scope of ``group``."""
    context, bounds = query
    hiding, scope = MinCount(store, least), "group" if group is not None else None

    def is_frequent(text: list[int]) -> bool:
        return oracle.holders(documents, text) >= least

    sizes = range(bounds["min_match"], min(len(context), bounds["max_match"]) + 1)
    length = max((size for size in sizes if is_frequent(context[-size:])), default=0)
    tail = context[len(context) - length :]
    count = len(oracle.occurrences(documents, tail)) if length else 0
    limits = [bounds[name] for name in ("max_match", "min_match")]
    assert hiding.lookup(context, *limits, group=group, scope=scope) == (length, count)
    nodes = oracle.draft(documents, tail, *limits, bounds["max_depth"], bounds["max_nodes"]) if length else []
    shown = [(path, found) for path, found in nodes if is_frequent([*tail, *path])]
    assert paths(hiding.draft(context, **bounds, group=group, scope=scope)) == shown
    pattern = context[-2:]
    if pattern:
        places = hiding.occurrences(pattern, 8, 4, 4, group=group, scope=scope)
        assert bool(places) == is_frequent(pattern)
        assert all(is_frequent([*place.before.tolist(), *place.tokens.tolist()]) for place in places)


@examples(60)
@given(
    documents=corpora(), query=queries(), least=st.integers(1, 4), pieces=st.sampled_from([1, 3]), deletes=st.booleans()
)
def test_files_with_deletions(documents: Documents, query: Query, least: int, pieces: int, deletes: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, parts = Path(folder) / "a", cut(documents, pieces)
        make_store(path, parts, vocab_size=VOCABULARY).close()
        if deletes and len(documents) > 1:
            delete(path, where=["source=segment 0 document 0"])
            parts[0] = parts[0][1:]
        with open_datastore(path) as store:
            check(store, [document for part in parts for document in part], query, least)


@examples(60)
@given(files=corpora(), appended=corpora(), query=queries(), least=st.integers(1, 4))
def test_live_datastores_and_several_as_one(files: Documents, appended: Documents, query: Query, least: int) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        static = stack.enter_context(make_store(Path(folder) / "files", [files], vocab_size=VOCABULARY))
        live = stack.enter_context(create_live_store(Path(folder) / "live", vocab_size=VOCABULARY))
        kept = [document for document in appended if document]
        for number, document in enumerate(kept):
            live.append(document, id=f"{number % 3}", group=f"g{number % 2}" if number % 4 else None)
            if number == len(kept) // 2:
                live.flush()
        live.delete(ids=["1"])
        left = [(number, document) for number, document in enumerate(kept) if number % 3 != 1]
        check(live, [document for _, document in left], query, least)
        grouped = [document for number, document in left if number % 2 == 0 and number % 4]
        check(live, grouped, query, least, "g0")
        merged = MergedDatastore({"files": static, "live": live})
        check(merged, grouped, query, least, "g0")
        check(merged, [*files, *(document for _, document in left)], query, least)
