"""Lookup and draft agree with the brute-force oracle for any segmentation, order and query."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.request_texts import ContextIndex, ParallelTexts
from tests.support import oracle
from tests.support.examples import examples
from tests.support.stores import make_store

VOCAB_SIZES = {2: 65_535, 3: 65_536, 4: (1 << 24) + 1}
"""Token width in bytes -> a vocabulary size with that width."""

Documents = list[list[int]]


@st.composite
def corpora(draw: st.DrawFn) -> Documents:
    """Hard cases for suffix sorting: small alphabets, many documents, empty documents, and long repeats."""
    alphabet = draw(st.integers(1, 4))
    document = st.lists(st.integers(0, alphabet - 1), max_size=24)
    documents = draw(st.lists(document, min_size=1, max_size=12))
    repeated = draw(st.lists(st.integers(0, alphabet - 1), min_size=1, max_size=3))
    documents += [repeated * draw(st.integers(1, 40))] * draw(st.integers(0, 3))
    return documents if any(documents) else [[0]]


@st.composite
def queries(draw: st.DrawFn) -> tuple[list[int], dict[str, int]]:
    context = draw(st.lists(st.integers(0, 4), max_size=20))
    min_match = draw(st.integers(1, 3))
    bounds = {
        "max_match": draw(st.integers(min_match, 20)),
        "min_match": min_match,
        "max_depth": draw(st.integers(1, 12)),
        "max_nodes": draw(st.integers(0, 40)),
    }
    return context, bounds


def paths(tree: DraftTree) -> list[tuple[tuple[int, ...], int]]:
    """Return (path, count) of each node, in order."""
    assert tree.counts is not None
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        found.append((found[parent] if parent >= 0 else ()) + (token,))
    return list(zip(found, tree.counts.tolist(), strict=True))


def cut(documents: Documents, pieces: int) -> list[Documents]:
    """Split the corpus into up to ``pieces`` segments, none of them empty."""
    return [part for part in (documents[start::pieces] for start in range(pieces)) if part]


@given(
    width=st.sampled_from([2, 3]),
    documents=corpora(),
    query=queries(),
    pieces=st.sampled_from([1, 2, 5]),
    threads=st.sampled_from([1, 4]),
)
@examples(100)
def test_lookup_and_draft_equal_the_oracle(width, documents, query, pieces, threads):
    """``test_one_answer.py`` has tokens of 4 bytes too."""
    # Ids at the top of the vocabulary, so that every byte of a token is used.
    top = VOCAB_SIZES[width] - 1
    corpus = [[top - token for token in document] for document in documents]
    context, bounds = [top - token for token in query[0]], query[1]
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder) / "store", cut(corpus, pieces), vocab_size=VOCAB_SIZES[width], threads=threads)
        assert store.info()["token_width"] == width
        expected = oracle.lookup(corpus, context, bounds["max_match"], bounds["min_match"])
        assert store.lookup(context, bounds["max_match"], bounds["min_match"]) == expected
        tree = store.draft(context, **bounds)
        assert (tree.match_length, tree.match_count) == expected
        assert paths(tree) == oracle.draft(corpus, context, **bounds)
        store.verify("full")


@given(documents=corpora(), context=st.lists(st.integers(0, 4), min_size=1, max_size=20), shallow=st.integers(2, 9))
@examples(60)
def test_a_small_order_depth_answers_all_it_allows(documents, context, shallow):
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder) / "store", cut(documents, 2), vocab_size=100, order_depth=shallow)
        for max_match in range(1, shallow):
            bounds = {"max_match": max_match, "min_match": 1, "max_depth": shallow - max_match, "max_nodes": 30}
            assert paths(store.draft(context, **bounds)) == oracle.draft(documents, context, **bounds)


@given(context=st.lists(st.integers(0, 2), min_size=1, max_size=60), query=queries())
@examples(200)
def test_context_index_is_a_datastore_of_what_came_before(context, query):
    bounds = query[1]
    index = ContextIndex(vocab_size=5)
    index.append([*context[:2], 4])
    index.truncate(len(context[:2]))
    for followed in ([*context, 4, 4], context):
        index.follow(followed)
    tree = index.draft(**bounds)
    # The oracle's corpus is the context; an occurrence counts if it ends before the context does.
    for length in range(min(bounds["max_match"], len(context) - 1), bounds["min_match"] - 1, -1):
        ends = [end for document, end in oracle.occurrences([context], context[-length:]) if end < len(context)]
        if ends:
            break
    else:
        assert (len(tree), tree.match_length, tree.match_count) == (0, 0, 0)
        return
    assert (tree.match_length, tree.match_count) == (length, len(ends))
    following = [context[end : end + bounds["max_depth"]] for end in ends]
    counts: dict[tuple[int, ...], int] = {}
    for tail in following:
        for depth in range(1, len(tail) + 1):
            counts[tuple(tail[:depth])] = counts.get(tuple(tail[:depth]), 0) + 1
    expected = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))[: bounds["max_nodes"]]
    assert paths(tree) == expected


@given(texts=st.lists(st.lists(st.integers(0, 2), max_size=40), min_size=1, max_size=5), query=queries())
@examples(200)
def test_parallel_texts_are_a_datastore_of_the_others(texts, query):
    context, bounds = query
    index = ParallelTexts(vocab_size=5)
    for number, text in enumerate(texts):
        for followed in ([4], [], text[:3], [*text, 4, 4], text):
            index.follow(number, followed)
    index.follow(len(texts), [4])
    index.remove(len(texts))
    assert len(index) == len(texts)
    for number in range(len(texts)):
        others = [text for each, text in enumerate(texts) if each != number and text]
        expected = oracle.lookup(others, context, bounds["max_match"], bounds["min_match"])
        tree = index.draft(number, context, **bounds)
        assert (tree.match_length, tree.match_count) == expected
        assert paths(tree) == (oracle.draft(others, context, **bounds) if expected[0] else [])


def test_many_threads_get_the_answers_of_one(tmp_path):
    generator = np.random.default_rng(7)
    documents = [generator.zipf(1.3, 400).clip(1, 200).tolist() for _ in range(50)]
    one = make_store(tmp_path / "one", [documents], vocab_size=300, threads=1)
    five = make_store(tmp_path / "five", cut(documents, 5), vocab_size=300, threads=4)
    contexts = [documents[i % 50][i % 300 : i % 300 + 12] for i in range(400)]
    expected = [paths(tree) for tree in one.draft_batch(contexts)]
    with ThreadPoolExecutor(4) as pool:
        for store in (one, five):
            assert [paths(tree) for tree in pool.map(store.draft, contexts)] == expected
            assert list(pool.map(store.lookup, contexts)) == one.lookup_batch(contexts)


def test_segment_bytes_do_not_depend_on_threads(tmp_path):
    generator = np.random.default_rng(3)
    documents = [generator.integers(0, 50, 2000).tolist() for _ in range(20)]
    make_store(tmp_path / "a", [documents], vocab_size=70_000, threads=1)
    make_store(tmp_path / "b", [documents], vocab_size=70_000, threads=4)
    assert (tmp_path / "a/segments/000000.seg").read_bytes() == (tmp_path / "b/segments/000000.seg").read_bytes()


def test_a_child_with_equal_counts_in_all_segments_is_found(tmp_path):
    """Rounding once put the share of each segment above 3, which the child [1, 2] has in both."""
    segment = [[0, 1, 2], [0, 9, 8], [0, 9, 5]] * 3
    store = make_store(tmp_path / "store", [segment, segment], vocab_size=10)
    expected = oracle.draft(segment * 2, [0], 16, 1, 10, 4)
    assert paths(store.draft([0], max_nodes=4)) == expected
