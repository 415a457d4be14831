"""Damaged, truncated and foreign segment files give an error or a wrong draft, never a crash."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore import _native
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument, PermissionDenied
from suffolk.datastore.segment import write_segment
from tests.support.forging import HEADER_BYTES, crc32c, mend, rewrite, sections
from tests.support.stores import make_store, separated


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    generator = np.random.default_rng(5)
    documents = [generator.integers(0, 40, 300).tolist() for _ in range(8)]
    make_store(tmp_path / "store", [documents], vocab_size=1000).close()
    return tmp_path / "store"


@pytest.fixture
def segment_path(store_path: Path) -> Path:
    return store_path / "segments/000000.seg"


def test_missing_and_unreadable_files_are_named(store_path, segment_path):
    segment_path.unlink()
    with pytest.raises(Corruption, match=r"000000\.seg is missing"):
        open_datastore(store_path)
    segment_path.mkdir()
    with pytest.raises(Corruption, match="is no regular file; restore it from a copy"):
        open_datastore(store_path)
    if os.geteuid() != 0:
        segment_path.rmdir()
        segment_path.write_bytes(b"")
        segment_path.chmod(0)
        with pytest.raises(PermissionDenied):
            open_datastore(store_path)


def test_checksums_are_crc32c(segment_path):
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    sound = segment_path.read_bytes()
    assert mend(bytearray(sound)) == sound


def test_verify_full_finds_what_checksums_cannot(store_path, segment_path):
    """A file with wrong contents has correct checksums; only the order of its suffixes shows the error."""
    tokens, positions = HEADER_BYTES, HEADER_BYTES + (8 * 301 * 2 + 63) // 64 * 64
    swapped, doubled, foreign, misled = (bytearray(segment_path.read_bytes()) for _ in range(4))
    swapped[positions : positions + 8] = swapped[positions + 4 : positions + 8] + swapped[positions : positions + 4]
    doubled[positions : positions + 4] = doubled[positions + 4 : positions + 8]
    foreign[tokens : tokens + 2] = struct.pack("<H", 1001)
    directory = sections(bytes(misled))[5]
    misled[directory.offset + directory.bytes - 1] ^= 1  # in the last key
    expected = {
        "out of order": swapped,
        "out of range or stands twice": doubled,
        "token 0 is 1001": foreign,
        "the directory's key of rank 2304 is wrong": misled,
    }
    for message, damaged in expected.items():
        rewrite(segment_path, mend(damaged))
        segment = _native.Segment(str(segment_path))
        segment.verify("checksums")
        with pytest.raises(Corruption, match=message):
            segment.verify("full")
        with pytest.raises(Corruption, match="is not the segment that the manifest lists"):
            open_datastore(store_path)


@pytest.mark.parametrize(
    ("tokens", "vocab_size", "order_depth", "message"),
    [
        (
            np.array([1, 2, 99, 0xFFFF], np.uint16),
            50,
            64,
            r"token id 99 at position 2 is out of range; the vocabulary has 50 ids",
        ),
        (np.array([], np.uint16), 50, 64, "the corpus is empty"),
        (np.array([1, 2], np.uint16), 50, 64, "a separator must follow every document"),
        (np.array([1, 0xFFFF], np.uint16), 70_000, 64, "vocab_size is 70000; tokens of 2 bytes allow 1 to 65535"),
        (np.array([1, 0xFFFF], np.uint16), 50, 0, "order_depth is 0; it must be 1 to 1024"),
        (np.array([1, 2], np.int64), 50, 64, "one-dimensional array of uint16 or uint32"),
    ],
)
def test_bad_tokens_are_refused_and_leave_no_file(tmp_path, tokens, vocab_size, order_depth, message):
    with pytest.raises(InvalidArgument, match=message):
        write_segment(tmp_path / "x.seg", tokens, vocab_size=vocab_size, order_depth=order_depth)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_progress_ends_the_work_and_leaves_no_file(tmp_path):
    generator = np.random.default_rng(1)
    tokens = separated([generator.integers(0, 9, 3_000_000).tolist()], 10)

    def refuse(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_segment(tmp_path / "x.seg", tokens, vocab_size=10, progress=refuse)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_document_is_a_document(tmp_path):
    store = make_store(tmp_path / "s", [[[], [1, 2], [], [1, 2, 3]]], vocab_size=9)
    assert store.info()["documents"] == 4
    assert store.lookup([1, 2]) == (2, 2)
    assert [document.tokens.tolist() for document in store.documents()] == [[], [1, 2], [], [1, 2, 3]]
    assert {place.source for place in store.occurrences([1, 2])} == {"segment 0 document 1", "segment 0 document 3"}
