"""Damaged, truncated and foreign segment files: an error that says so, or a wrong draft; never a crash."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from datastore import _native, open_datastore
from datastore.errors import Corruption, InvalidArgument, PermissionDenied, Unsupported
from datastore.segment import separated, write_segment
from tests.stores import make_store

HEADER_BYTES = 256


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    generator = np.random.default_rng(5)
    documents = [generator.integers(0, 40, 300).tolist() for _ in range(8)]
    make_store(tmp_path / "store", [documents], vocab_size=1000).close()
    return tmp_path / "store"


@pytest.fixture
def segment_path(store_path: Path) -> Path:
    return store_path / "segments/000000.seg"


def rewrite(path: Path, content: bytes) -> None:
    """Replace a file under its name, as a broken copy would; the old one may still be mapped."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.replace(path)


def test_every_header_bit_is_guarded(store_path, segment_path):
    sound = segment_path.read_bytes()
    for bit in range(HEADER_BYTES * 8):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        rewrite(segment_path, bytes(damaged))
        with pytest.raises((Corruption, Unsupported), match=r"000000\.seg"):
            open_datastore(store_path)


def test_every_truncation_is_noticed(store_path, segment_path):
    sound = segment_path.read_bytes()
    lengths = {0, 1, HEADER_BYTES - 1, HEADER_BYTES, len(sound) - 1, *range(0, len(sound), 97)}
    for length in sorted(lengths):
        rewrite(segment_path, sound[:length])
        with pytest.raises(Corruption, match="is no segment file|the file has"):
            open_datastore(store_path)


def test_trailing_bytes_are_noticed(store_path, segment_path):
    rewrite(segment_path, segment_path.read_bytes() + b"\0")
    with pytest.raises(Corruption, match="bytes, its header says"):
        open_datastore(store_path)


def test_a_foreign_file_is_no_segment(store_path, segment_path):
    rewrite(segment_path, b"PK\x03\x04" + bytes(5000))
    with pytest.raises(Corruption, match="does not begin with the magic number"):
        open_datastore(store_path)


def test_missing_and_unreadable_files_are_named(store_path, segment_path):
    segment_path.unlink()
    with pytest.raises(Corruption, match=r"000000\.seg is missing"):
        open_datastore(store_path)
    segment_path.mkdir()
    with pytest.raises(InvalidArgument, match="is not a regular file"):
        open_datastore(store_path)
    if os.geteuid() != 0:
        segment_path.rmdir()
        segment_path.write_bytes(b"")
        segment_path.chmod(0)
        with pytest.raises(PermissionDenied):
            open_datastore(store_path)


def test_body_damage_never_crashes_and_verify_finds_it(store_path, segment_path):
    sound = segment_path.read_bytes()
    generator = np.random.default_rng(11)
    contexts = [generator.integers(0, 40, 6).tolist() for _ in range(20)] + [[token] for token in range(40)]
    for _ in range(150):
        damaged = bytearray(sound)
        for at in generator.integers(HEADER_BYTES, len(sound), generator.integers(1, 200)):
            damaged[at] = generator.integers(0, 256)
        rewrite(segment_path, bytes(damaged))
        if bytes(damaged) == sound:
            continue
        try:
            store = open_datastore(store_path)
        except Corruption:
            continue  # the damage hit the section table, the trailer, or the header
        for context in contexts:
            assert len(store.draft(context)) <= 64
            with contextlib.suppress(Corruption):
                store.occurrences(context[-1:], 5)
        with pytest.raises(Corruption, match="checksum of bytes"):
            store.verify("checksums")


def crc32c(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def forge(segment: bytearray) -> bytes:
    """Give a changed body of one chunk the checksums it should have."""
    table_offset = struct.unpack_from("<Q", segment, len(segment) - 32)[0]
    segment[-36:-32] = struct.pack("<I", crc32c(bytes(segment[:table_offset])))
    segment[-12:-8] = struct.pack("<I", crc32c(bytes(segment[table_offset:-12])))
    return bytes(segment)


def section(segment: bytes, number: int) -> tuple[int, int]:
    """Offset and bytes of a section, from the section table."""
    table_offset = struct.unpack_from("<Q", segment, len(segment) - 32)[0]
    name, _, offset, size = struct.unpack_from("<IIQQ", segment, table_offset + 24 * (number - 1))
    assert name == number
    return offset, size


@pytest.mark.parametrize(("vocab_size", "width", "key_tokens"), [(1000, 2, 8), (70_000, 3, 5), ((1 << 24) + 1, 4, 4)])
def test_the_directory_holds_the_key_of_every_128th_rank(tmp_path, vocab_size, width, key_tokens):
    generator = np.random.default_rng(9)
    documents = [(vocab_size - 1 - generator.integers(0, 3, size)).tolist() for size in (1, 3, 130, 500)]
    make_store(tmp_path / "store", [documents], vocab_size=vocab_size).close()
    content = (tmp_path / "store/segments/000000.seg").read_bytes()
    suffixes = sorted(
        document[start:] + [(1 << 8 * width) - 1] * 700 for document in documents for start in range(len(document))
    )
    expected = []
    for suffix in suffixes[::128]:
        key = 0
        for token in suffix[:key_tokens]:
            key = key << 8 * width | token
        expected.append(key << 128 - 8 * width * key_tokens)
    offset, size = section(content, 6)
    halves = struct.unpack_from(f"<{size // 8}Q", content, offset)
    assert [high << 64 | low for high, low in zip(halves[::2], halves[1::2], strict=True)] == expected


def test_the_worked_example_of_the_specification(tmp_path):
    make_store(tmp_path / "store", [[[1, 2, 3], [1, 2]]], vocab_size=5).close()
    content = (tmp_path / "store/segments/000000.seg").read_bytes()
    numbers = {2: [0, 4, 1, 5, 2], 3: [0, 0, 2, 4, 5, 5], 4: [0, 4, 7]}
    for number, expected in numbers.items():
        offset, size = section(content, number)
        assert list(struct.unpack_from(f"<{size // 4}I", content, offset)) == expected
    offset, size = section(content, 6)
    assert struct.unpack_from("<QQ", content, offset) == (0x0001_0002_0003_FFFF, 0xFFFF_FFFF_FFFF_FFFF)
    assert size == 16


def test_a_directory_of_the_wrong_size_is_refused(store_path, segment_path):
    damaged = bytearray(segment_path.read_bytes())
    table_offset = struct.unpack_from("<Q", damaged, len(damaged) - 32)[0]
    size_field = table_offset + 24 * 5 + 16
    damaged[size_field : size_field + 8] = struct.pack("<Q", section(bytes(damaged), 6)[1] - 16)
    rewrite(segment_path, forge(damaged))
    with pytest.raises(Corruption, match="section 6 has offset"):
        open_datastore(store_path)


def test_checksums_are_crc32c(segment_path):
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    sound = segment_path.read_bytes()
    assert forge(bytearray(sound)) == sound


def test_verify_full_finds_what_checksums_cannot(store_path, segment_path):
    """A file that was written wrongly has right checksums; only its order tells."""
    tokens, positions = HEADER_BYTES, HEADER_BYTES + (8 * 301 * 2 + 63) // 64 * 64
    swapped, doubled, foreign, misled = (bytearray(segment_path.read_bytes()) for _ in range(4))
    swapped[positions : positions + 8] = swapped[positions + 4 : positions + 8] + swapped[positions : positions + 4]
    doubled[positions : positions + 4] = doubled[positions + 4 : positions + 8]
    foreign[tokens : tokens + 2] = struct.pack("<H", 1001)
    directory, size = section(bytes(misled), 6)
    misled[directory + size - 1] ^= 1  # in the last key
    expected = {
        "out of order": swapped,
        "out of range or stands twice": doubled,
        "token 0 is 1001": foreign,
        "the directory's key of rank 2304 is wrong": misled,
    }
    for message, damaged in expected.items():
        rewrite(segment_path, forge(damaged))
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
