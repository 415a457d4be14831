"""Damage to the files of a datastore gives an error of the correct class or an answer within bounds, never a crash."""

from __future__ import annotations

import contextlib
import json
import math
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.datastore import _native
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import DocumentTable
from suffolk.datastore.errors import Corruption, InvalidArgument, SuffolkError, Unsupported
from tests.support.forging import ENTRY, HEADER_BYTES, TRAILER_BYTES, checksum, mend, rewrite, sections
from tests.support.stores import make_store

VOCABULARY = 40
MAX_NODES = 24
FLIPS = 2000
U32 = (0, 1, 5, 255, 2**31, 2**32 - 2, 2**32 - 1)
U64 = (*U32, 2**32, 2**62, 2**63, 2**64 - 64, 2**64 - 1)
HEADER_FIELDS = {
    "version": (8, "<I"),
    "header_bytes": (12, "<I"),
    "reader_flags": (16, "<Q"),
    "token_width": (32, "<I"),
    "position_width": (36, "<I"),
    "token_count": (40, "<Q"),
    "suffix_count": (48, "<Q"),
    "document_count": (56, "<Q"),
    "vocab_size": (64, "<I"),
    "order_depth": (68, "<I"),
    "file_bytes": (104, "<Q"),
    "table_offset": (112, "<Q"),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    generator = np.random.default_rng(5)
    documents = [generator.integers(0, VOCABULARY, 50).tolist() for _ in range(8)] + [[], [7] * 40]
    make_store(tmp_path / "store", [documents], vocab_size=VOCABULARY).close()
    return tmp_path / "store"


@pytest.fixture
def segment(store: Path) -> Path:
    return store / "segments/000000.seg"


def refuse(path: Path, content: bytes, *kinds: type[SuffolkError]) -> None:
    rewrite(path, content)
    with pytest.raises(kinds or Corruption, match=path.name):
        _native.Segment(str(path))


def use(store: Path) -> None:
    """Call all queries of a datastore. Answers may be wrong, but stay within bounds."""
    with contextlib.suppress(Corruption, Unsupported), open_datastore(store) as datastore:
        size = datastore.manifest.vocab_size
        contexts = [[token % size, (token + 1) % size] for token in range(0, VOCABULARY, 3)] + [[7 % size] * 12]
        for tree in datastore.draft_batch(contexts, max_nodes=MAX_NODES):
            assert len(tree) <= MAX_NODES
            assert tree.tokens.max(initial=0) < size
            assert all(-1 <= parent < place for place, parent in enumerate(tree.parents))
            assert tree.counts.min(initial=1) >= 1
        for match in datastore.lookup_batch(contexts):
            assert 0 <= match.length <= 16
        for context in contexts:
            with contextlib.suppress(Corruption):
                for place in datastore.occurrences(context[:1], 3):
                    assert place.tokens.max(initial=0) < size
                    assert place.offset >= 0
        with contextlib.suppress(Corruption):
            assert all(document.tokens.max(initial=0) < size for document in datastore.documents())
        for depth in ("headers", "checksums", "full"):
            datastore.verify(depth)


def test_every_truncation_is_noticed(segment: Path) -> None:
    sound = segment.read_bytes()
    borders = {place for section in sections(sound) for place in (section.offset, section.offset + section.bytes)}
    borders |= {0, HEADER_BYTES, sections(sound)[0].place, len(sound) - TRAILER_BYTES, len(sound)}
    lengths = {border + step for border in borders for step in (-1, 0, 1)} | set(range(0, len(sound), 53))
    for length in sorted(lengths & set(range(len(sound)))):
        refuse(segment, sound[:length])
        if length >= HEADER_BYTES + TRAILER_BYTES:  # truncated, with a header and trailer that claim otherwise
            cut = bytearray(sound[:length])
            cut[104:112] = struct.pack("<Q", length)
            refuse(segment, mend(cut))
    refuse(segment, sound + b"\0")
    refuse(segment, sound + sound)


def test_every_bit_outside_the_sections_is_guarded(segment: Path) -> None:
    """Damage to any bit of header, section table, chunk checksums or trailer is Corruption.

    Damage to the version or to a flag is Unsupported.
    """
    sound = segment.read_bytes()
    for place in (*range(HEADER_BYTES), *range(sections(sound)[0].place, len(sound))):
        for bit in range(8):
            damaged = bytearray(sound)
            damaged[place] ^= 1 << bit
            refuse(segment, bytes(damaged), Corruption, *([Unsupported] if 8 <= place < 24 else []))


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_hostile_headers_with_right_checksums_are_refused(segment: Path, field: str) -> None:
    sound = segment.read_bytes()
    offset, kind = HEADER_FIELDS[field]
    (there,) = struct.unpack_from(kind, sound, offset)
    values = {*(U64 if kind == "<Q" else U32), there - 1, there + 1} - {there, -1}
    if field == "order_depth":
        values = {value for value in values if not 1 <= value <= 1024} | {1025}
    for value in values:
        damaged = bytearray(sound)
        struct.pack_into(kind, damaged, offset, value)
        refuse(segment, mend(damaged), Unsupported if field in ("version", "reader_flags") else Corruption)


def test_hostile_section_tables_with_right_checksums_are_refused(segment: Path) -> None:
    sound = segment.read_bytes()
    table = sections(sound)
    for section in table:
        for value in (*U64, section.offset + 64, section.offset - 64):
            if value != section.offset:
                refuse(segment, forged_entry(sound, section.place, section.id, value, section.bytes))
        for value in {*U64, section.bytes + 64} - {section.bytes}:
            refuse(segment, forged_entry(sound, section.place, section.id, section.offset, value))
        for value in {*U32, section.id + 1} - {section.id}:
            refuse(segment, forged_entry(sound, section.place, value, section.offset, section.bytes))
    for one, other in zip(table, table[1:], strict=False):
        swapped = bytearray(sound)
        swapped[one.place : one.place + 24], swapped[other.place : other.place + 24] = (
            sound[other.place : other.place + 24],
            sound[one.place : one.place + 24],
        )
        refuse(segment, mend(swapped))
        refuse(segment, forged_entry(sound, other.place, other.id, one.offset, other.bytes))  # they overlap


def forged_entry(sound: bytes, place: int, number: int, offset: int, size: int) -> bytes:
    damaged = bytearray(sound)
    ENTRY.pack_into(damaged, place, number, 0, offset, size)
    return mend(damaged)


def test_other_files_are_no_segments(segment: Path) -> None:
    for content in (b"", b"\0", b"PK\x03\x04" + bytes(5000), bytes(300), segment.read_bytes()[::-1]):
        refuse(segment, content, Corruption, Unsupported)
    segment.unlink()
    segment.mkdir()
    with pytest.raises(InvalidArgument, match="is not a regular file"):
        _native.Segment(str(segment))


def test_damaged_sections_give_answers_within_bounds(store: Path, segment: Path) -> None:
    """Half of the damaged files have correct checksums and a matching manifest, so only bounds checks can catch the damage."""
    sound = segment.read_bytes()
    manifest = json.loads((store / "MANIFEST").read_text())
    chooser = random.Random(11)
    end = sections(sound)[0].place
    for number in range(FLIPS):
        damaged = bytearray(sound)
        section = chooser.choice(sections(sound))
        for _ in range(chooser.choice((1, 1, 2, 8, 60))):
            if number % 3 == 0:
                damaged[chooser.randrange(HEADER_BYTES, end)] ^= 1 << chooser.randrange(8)
            elif number % 3 == 1:
                place = section.offset + chooser.randrange(max(1, section.bytes // 4)) * 4
                struct.pack_into("<I", damaged, place, chooser.choice((*U32, chooser.randrange(500))))
            else:
                damaged[section.offset + chooser.randrange(max(1, section.bytes))] = chooser.randrange(256)
        content = mend(damaged) if number % 2 else bytes(damaged)
        rewrite(segment, content)
        manifest["segments"][0]["checksum"] = checksum(content)
        (store / "MANIFEST").write_text(json.dumps(manifest))
        use(store)
        if bytes(damaged) != sound and number % 2 == 0:
            with pytest.raises(Corruption, match=r"000000\.seg"):
                _native.Segment(str(segment)).verify("checksums")


def test_damaged_document_tables_give_a_name_or_an_error(segment: Path) -> None:
    sound = bytes(_native.Segment(str(segment)).document_table())
    chooser = random.Random(3)
    tables = [sound[:length] for length in range(len(sound))] + [struct.pack("<II", *pair) for pair in ((0, 0), (1, 0))]
    for _ in range(1500):
        damaged = bytearray(sound)
        for _ in range(chooser.choice((1, 2, 20))):
            damaged[chooser.randrange(len(sound))] = chooser.randrange(256)
        tables.append(bytes(damaged))
    for table in tables:
        for document in (0, 5, 255, 256, 2**31):
            with contextlib.suppress(Corruption):
                source = DocumentTable(table, "x").origin(document).source
                assert source is None or isinstance(source, str)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))


def changed(manifest: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = json.loads(json.dumps(manifest))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


def test_manifests_that_say_other_things_are_refused_or_true(store: Path) -> None:
    path = store / "MANIFEST"
    manifest = json.loads(path.read_text())
    hostile = (None, True, -1, 0, 1.5, 2**64, 10**400, math.nan, "", "\0", "a/b", "..", "é", [], {}, [[]], ...)
    for place in leaves(manifest):
        for value in hostile:
            if not place and value is ...:
                continue
            path.write_text(json.dumps(changed(manifest, place, value)))
            use(store)
    free = {"generation", "order_depth", "created", "settings"}  # the files do not contain these values, or not exactly
    for place in leaves(manifest):
        if place and place[0] not in free:
            path.write_text(json.dumps(changed(manifest, place, "")))
            with pytest.raises((Corruption, Unsupported), match="MANIFEST|manifest"):
                open_datastore(store)


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer": "zz"},
        {"tokenizer": 5},
        {"generation": True},
        {"vocab_size": 1.0},
        {"segments": {}},
        {"segments": [5]},
        {"settings": []},
        {"settings": [["a", 1]]},
        {"created": 5},
    ],
)
def test_a_manifest_with_a_value_of_the_wrong_kind_is_damaged(store: Path, change: dict[str, Any]) -> None:
    """Regression: a tokenizer field that is no fingerprint used to raise the ValueError of a hexadecimal parser."""
    path = store / "MANIFEST"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(Corruption, match="MANIFEST"):
        open_datastore(store)


def test_damaged_bytes_of_a_manifest_are_refused_or_true(store: Path) -> None:
    path = store / "MANIFEST"
    sound = path.read_bytes()
    chooser = random.Random(2)
    for number in range(600):
        damaged = bytearray(sound[: chooser.randrange(len(sound))] if number % 4 == 0 else sound)
        for _ in range(chooser.choice((0, 1, 2, 9)) if damaged else 0):
            damaged[chooser.randrange(len(damaged))] = chooser.randrange(256)
        path.write_bytes(bytes(damaged))
        use(store)
    for content in (b"", b"\0" * 100, b"[" * 100_000, b"\xff\xfe", b'"MANIFEST"', b"1" * 10_000):
        path.write_bytes(content)
        with pytest.raises((Corruption, Unsupported), match="MANIFEST"):
            open_datastore(store)
