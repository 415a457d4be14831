"""Deletions are subtracted segments. The answers equal those of a corpus without the deleted documents."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.segment import write_segment
from suffolk.serving.decoding.drafters.registry import source_bits
from tests.property.test_retrieval import VOCAB_SIZES, Documents, corpora, cut, paths, queries
from tests.support import oracle
from tests.support.examples import examples
from tests.support.stores import separated


def make_segment(path: Path, documents: Documents, vocab_size: int) -> _native.Segment:
    write_segment(path, separated(documents, vocab_size), vocab_size=vocab_size)
    return _native.Segment(str(path))


def make_searcher(
    folder: Path, parts: list[Documents], deleted: list[list[int]], vocab_size: int, deletion_pieces: int
) -> _native.Searcher:
    """A searcher of the segments ``parts`` with deletion segments that hold the documents at the given indices."""
    segments = [make_segment(folder / f"s{number}", part, vocab_size) for number, part in enumerate(parts)]
    gone = [part[index] for part, indices in zip(parts, deleted, strict=True) for index in indices]
    deletions = [
        make_segment(folder / f"d{number}", part, vocab_size) for number, part in enumerate(cut(gone, deletion_pieces))
    ]
    return _native.Searcher(segments, deletions, [np.array(indices, np.uint32) for indices in deleted])


def draft(searcher: _native.Searcher, context: list[int], bounds: dict[str, int]) -> DraftTree:
    match = bounds["max_match"], bounds["min_match"]
    (tree,) = searcher.draft([context], *match, bounds["max_depth"], [bounds["max_nodes"]], source_bits("datastore"))
    return tree


@st.composite
def deletions(draw: st.DrawFn) -> tuple[list[Documents], list[list[int]]]:
    """A corpus in 1 to 5 segments, and the documents deleted from each: few, many, or whole families of equal ones."""
    parts = cut(draw(corpora()), draw(st.integers(1, 5)))
    share = draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))
    random = draw(st.randoms(use_true_random=False))
    return parts, [[index for index in range(len(part)) if random.random() < share] for part in parts]


@given(
    width=st.sampled_from([2, 3]),
    corpus=deletions(),
    query=queries(),
    deletion_pieces=st.sampled_from([1, 2, 3]),
)
@examples(120)
def test_answers_equal_the_oracle_without_the_deleted_documents(width, corpus, query, deletion_pieces):
    compare_with_oracle(width, corpus, query, deletion_pieces)


def test_four_byte_tokens_equal_the_oracle():
    """One example, because each table of first ranks of this vocabulary has 64 MB."""
    corpus = [[[0, 1, 2, 0], [3, 0, 1, 2]], [[0, 1, 3], [0, 1, 2, 0]]], [[1], [1]]
    bounds = {"max_match": 8, "min_match": 1, "max_depth": 4, "max_nodes": 20}
    compare_with_oracle(4, corpus, ([5, 0, 1], bounds), deletion_pieces=1)


def compare_with_oracle(width, corpus, query, deletion_pieces):
    top = VOCAB_SIZES[width] - 1
    parts = [[[top - token for token in document] for document in part] for part in corpus[0]]
    deleted = corpus[1]
    left = [
        document
        for part, indices in zip(parts, deleted, strict=True)
        for index, document in enumerate(part)
        if index not in indices
    ]
    context, bounds = [top - token for token in query[0]], query[1]
    with tempfile.TemporaryDirectory() as folder:
        searcher = make_searcher(Path(folder), parts, deleted, VOCAB_SIZES[width], deletion_pieces)
        max_match, min_match = bounds["max_match"], bounds["min_match"]
        expected = oracle.lookup(left, context, max_match, min_match)
        assert searcher.lookup([context], max_match, min_match) == [expected]
        tree = draft(searcher, context, bounds)
        assert (tree.match_length, tree.match_count) == expected
        assert paths(tree) == oracle.draft(left, context, **bounds)
        for pattern in (context[-1:], context[-2:]):
            live = live_places(parts, deleted, pattern)
            for limit in (1, 3, 10_000):
                places = searcher.occurrences(pattern, limit)
                assert len(set(places)) == len(places) == min(limit, len(live))
                assert set(places) <= live


def live_places(parts: list[Documents], deleted: list[list[int]], pattern: list[int]) -> set[tuple[int, int]]:
    """Return (segment, position) of all occurrences in the remaining documents."""
    places = set()
    for number, part in enumerate(parts):
        starts = np.cumsum([0] + [len(document) + 1 for document in part])
        for document, end in oracle.occurrences(part, pattern) if pattern else []:
            if document not in deleted[number]:
                places.add((number, int(starts[document]) + end - len(pattern)))
    return places


def test_a_heavy_continuation_that_deletions_make_light_stands_at_its_own_count(tmp_path):
    """After token 1 comes token 2 a thousand times (990 of them deleted), 3 a hundred times, 4 forty times, and 5 ten times."""
    parts = [[[1, 2]] * 1000 + [[1, 3]] * 100 + [[1, 4]] * 40 + [[1, 5]] * 10]
    searcher = make_searcher(tmp_path, parts, [list(range(5, 995))], 9, deletion_pieces=2)
    tree = draft(searcher, [1], {"max_match": 1, "min_match": 1, "max_depth": 3, "max_nodes": 10})
    assert tree.match_count == 160
    assert paths(tree) == [((3,), 100), ((4,), 40), ((2,), 10), ((5,), 10)]


def test_deletions_that_take_away_more_than_there_is_leave_nothing(tmp_path):
    """Counts do not fall below 0. Only damaged or mismatched files have more deletions than documents."""
    segment = make_segment(tmp_path / "s", [[1, 2], [1, 3]], 9)
    too_much = make_segment(tmp_path / "d", [[1, 2]] * 5, 9)
    searcher = _native.Searcher([segment], [too_much])
    assert searcher.lookup([[1]], 4, 1) == [(0, 0)]
    assert searcher.lookup([[1, 3]], 4, 1) == [(2, 1)]
    assert len(draft(searcher, [1], {"max_match": 4, "min_match": 1, "max_depth": 4, "max_nodes": 10})) == 0


def test_lists_of_deleted_documents_are_checked(tmp_path):
    segment = make_segment(tmp_path / "s", [[1, 2], [1, 3]], 9)
    for bad in ([2], [1, 0], [1, 1]):
        with pytest.raises(InvalidArgument, match="must rise and be below 2"):
            _native.Searcher([segment], [], [np.array(bad, np.uint32)])
    with pytest.raises(InvalidArgument, match="2 lists for 1 segments"):
        _native.Searcher([segment], [], [np.array([0], np.uint32)] * 2)
