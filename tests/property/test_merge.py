"""Merging gives the same bytes as sorting the remaining documents into a new segment."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore import _native
from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.datastore.segment import write_segment
from tests.property.test_deletions import deletions
from tests.property.test_retrieval import VOCAB_SIZES, Documents
from tests.support.examples import examples
from tests.support.stores import separated

TABLE = b"any table"


def make_segments(folder: Path, parts: list[Documents], vocab_size: int, order_depth: int) -> list[_native.Segment]:
    for number, part in enumerate(parts):
        write_segment(folder / f"{number}", separated(part, vocab_size), vocab_size=vocab_size, order_depth=order_depth)
    return [_native.Segment(str(folder / f"{number}")) for number in range(len(parts))]


def compare_with_sorting(
    folder: Path, parts: list[Documents], deleted: list[list[int]], vocab_size: int, order_depth: int, threads: int
) -> None:
    left = [
        document
        for part, indices in zip(parts, deleted, strict=True)
        for index, document in enumerate(part)
        if index not in set(indices)
    ]
    segments = make_segments(folder, parts, vocab_size, order_depth)
    lists = [np.array(indices, np.uint32) for indices in deleted]
    merged = folder / "merged"
    if not left:
        with pytest.raises(InvalidArgument, match="all documents are deleted"):
            _native.merge_segments(str(merged), segments, lists, TABLE, threads, None)
        assert not list(folder.glob("merged*"))
        return
    summary = _native.merge_segments(str(merged), segments, lists, TABLE, threads, None)
    entry = write_segment(
        folder / "sorted",
        separated(left, vocab_size),
        vocab_size=vocab_size,
        order_depth=order_depth,
        documents=TABLE,
    )
    assert merged.read_bytes() == (folder / "sorted").read_bytes()
    assert summary == (entry.tokens, entry.documents, entry.bytes, int(entry.checksum, 16))


@given(
    width=st.sampled_from([2, 3]),
    corpus=deletions(),
    order_depth=st.sampled_from([1, 3, 4, 5, 7, 8, 9, 16, 64, 1000]),
    threads=st.sampled_from([1, 3]),
)
@examples(80)
def test_merging_equals_sorting(width, corpus, order_depth, threads):
    top = VOCAB_SIZES[width] - 1
    parts = [[[top - token for token in document] for document in part] for part in corpus[0]]
    with tempfile.TemporaryDirectory() as folder:
        compare_with_sorting(Path(folder), parts, corpus[1], VOCAB_SIZES[width], order_depth, threads)


def test_four_byte_tokens_merge_too(tmp_path):
    """One example, because each table of first ranks of this vocabulary has 64 MB."""
    top = VOCAB_SIZES[4] - 1
    parts = [[[top, 0, top - 1, 0], [1, top]], [[0, top - 1, 0], [], [top, 0, top]]]
    compare_with_sorting(tmp_path, parts, [[1], [1]], VOCAB_SIZES[4], 64, 1)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_many_slices_of_unlike_segments_equal_sorting(tmp_path, share):
    """The test merges 1.5 M tokens in several slices.

    Segments have tokens from different parts of the vocabulary, or repeats.
    """
    generator = np.random.default_rng(12)
    ranges = [(0, 3), (0, 3), (40, 50), (0, 50)]
    parts = [
        [generator.integers(low, high, size).tolist() for size in generator.integers(0, 4000, 100)]
        for low, high in ranges
    ]
    parts[1][:50] = parts[0][:50]
    deleted = [np.flatnonzero(generator.random(len(part)) < share).tolist() for part in parts]
    for threads in (1, 2):
        folder = tmp_path / str(threads)
        folder.mkdir()
        compare_with_sorting(folder, parts, deleted, 50, 64, threads)


def test_a_failing_progress_ends_merging_and_leaves_no_file(tmp_path):
    segments = make_segments(tmp_path, [[[1, 2, 3]], [[1, 2]]], 9, 64)

    def refuse(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _native.merge_segments(str(tmp_path / "merged"), segments, [], b"", 1, refuse)
    assert not list(tmp_path.glob("merged*"))


def test_segments_that_do_not_go_together_are_refused(tmp_path):
    for name, vocab_size, depth in (("a", 9, 64), ("b", 10, 64), ("c", 9, 32)):
        write_segment(tmp_path / name, separated([[1, 2]], 9), vocab_size=vocab_size, order_depth=depth)
    a, b, c = (_native.Segment(str(tmp_path / name)) for name in "abc")
    for other in (b, c):
        with pytest.raises(InvalidArgument, match="differ in vocabulary, tokenizer or order depth"):
            _native.merge_segments(str(tmp_path / "merged"), [a, other], [], b"", 1, None)
    with pytest.raises(InvalidArgument, match="no segment to merge"):
        _native.merge_segments(str(tmp_path / "merged"), [], [], b"", 1, None)
    with pytest.raises(InvalidArgument, match="must rise and be below 1"):
        _native.merge_segments(str(tmp_path / "merged"), [a], [np.array([1], np.uint32)], b"", 1, None)
    assert not list(tmp_path.glob("merged*"))


def test_damaged_segments_end_in_an_error_or_a_file_never_in_a_crash(tmp_path):
    generator = np.random.default_rng(5)
    parts = [[generator.integers(0, 40, 300).tolist() for _ in range(4)] for _ in range(3)]
    segments = make_segments(tmp_path, parts, 1000, 64)
    sound = (tmp_path / "1").read_bytes()
    deleted = [np.array([1], np.uint32), np.array([0, 2], np.uint32), np.array([], np.uint32)]
    outcomes = set()
    for _ in range(200):
        damaged = bytearray(sound)
        for at in generator.integers(256, len(sound) - 250, generator.integers(1, 30)):
            damaged[at] = generator.integers(0, 256)
        (tmp_path / "damaged").unlink(missing_ok=True)
        (tmp_path / "damaged").write_bytes(damaged)
        inputs = [segments[0], _native.Segment(str(tmp_path / "damaged")), segments[2]]
        try:
            _native.merge_segments(str(tmp_path / "merged"), inputs, deleted, b"", 2, None)
            outcomes.add("a file")
        except SuffolkError as error:
            outcomes.add(type(error).__name__)
    assert outcomes <= {"a file", "Corruption"}
    assert "Corruption" in outcomes
