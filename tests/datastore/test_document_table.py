"""Tests the segment's table of document origins."""

from __future__ import annotations

import contextlib
import struct
import weakref

import pytest
import zstandard

from suffolk.datastore import _native
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import (
    BLOCK_DOCUMENTS,
    MAX_METADATA_BYTES,
    MAX_SOURCE_CHARACTERS,
    DocumentTable,
    DocumentTableWriter,
    Origin,
)
from suffolk.datastore.errors import Corruption, InvalidArgument
from suffolk.datastore.manifest import Manifest, publish
from suffolk.datastore.segment import write_segment
from tests.support.stores import make_store, separated


def entry(name, tokens, documents):
    return {"name": name, "tokens": tokens, "documents": documents, "bytes": 1, "checksum": ""}


def test_document_table_gives_every_source_back():
    writer = DocumentTableWriter()
    sources = [f"folder/file-{number}.py é" for number in range(1000)] + ["x" * 10_000, ""]
    metadata = [
        {"license": "mit", "stars": number, "fork": number % 2 == 0} if number % 3 else {} for number in range(1002)
    ]
    writer.extend(zip(sources, metadata, strict=True))
    raw = writer.finish()
    table = DocumentTable(raw, "a.seg")
    expected = [Origin(source[:4096] or None, kept) for source, kept in zip(sources, metadata, strict=True)]
    assert [table.origin(number) for number in range(1002)] == expected
    assert list(table.origins(1002)) == expected
    with pytest.raises(Corruption, match=r"a\.seg: the document table is damaged at document 1002"):
        table.origin(1002)
    for wrong in (1001, 1003, 1025):
        with pytest.raises(Corruption, match="document table is damaged"):
            list(table.origins(wrong))
    for at in range(0, len(raw), 13):
        damaged = bytearray(raw)
        damaged[at] ^= 0x55
        for document in (0, 300, 1000):
            with contextlib.suppress(Corruption):
                DocumentTable(bytes(damaged), "a.seg").origin(document)
    assert DocumentTable(b"", "a.seg").origin(0) == Origin(None, {})
    assert list(DocumentTable(b"", "a.seg").origins(300)) == [Origin(None, {})] * 300


@pytest.mark.parametrize(
    "entry",
    [
        '"source"',
        "{}",
        '{"source": 3}',
        '{"source": "a", "tokens": 3}',
        '{"source": "a", "metadata": null}',
        '{"source": "a", "metadata": {"x": [1]}}',
        '{"source": "a", "metadata": {"x": null}}',
        '{"source": "a", "metadata": {"x": NaN}}',
        '{"source": "a", "metadata": {"x": 1e999}}',
        "[" * 100_000,
    ],
)
def test_document_tables_of_another_shape_are_refused(entry):
    frame = zstandard.compress(f"[{entry}]".encode())
    raw = struct.pack("<IIII", 1, 256, 0, len(frame)) + frame
    with pytest.raises(Corruption, match=r"a\.seg: the document table is damaged at document 0"):
        DocumentTable(raw, "a.seg").origin(0)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"tags": ["a"]}, "p.jsonl:7: metadata field 'tags' holds list, not text"),
        ({"score": float("nan")}, "p.jsonl:7: metadata field 'score' holds float, not text, a finite number"),
        ({"abstract": "é" * 9000}, "p.jsonl:7: metadata of 18015 bytes; a document may have 16384"),
    ],
)
def test_metadata_that_cannot_be_kept_names_the_record(metadata, message):
    with pytest.raises(InvalidArgument, match=message):
        DocumentTableWriter().add("p.jsonl:7", metadata)


def test_the_largest_entries_fit_into_a_block():
    writer = DocumentTableWriter()
    for _ in range(BLOCK_DOCUMENTS):
        writer.add("\0" * MAX_SOURCE_CHARACTERS, {"x": "\0" * (MAX_METADATA_BYTES // 6 - 2)})
    assert len(list(DocumentTable(writer.finish(), "a.seg").origins(BLOCK_DOCUMENTS))) == BLOCK_DOCUMENTS


def test_a_document_table_beyond_its_offsets_is_refused():
    """A table that is too large for offsets of 32 bits is refused.

    The offsets would wrap silently, and the table could never be read.
    """

    class Large(bytes):
        def __len__(self):
            return 1 << 31

    writer = DocumentTableWriter()
    writer._blocks = [Large(), Large()]
    with pytest.raises(InvalidArgument, match="takes 4294967296 bytes; the limit is 4294967295: keep fewer"):
        writer.finish()


def test_a_document_table_keeps_its_segment_mapped(tmp_path):
    """Regression: a view of a segment's view used not to keep the file mapped, so reading it crashed the process."""
    make_store(tmp_path / "store", [[[1, 2]]], vocab_size=10).close()
    segment = _native.Segment(str(tmp_path / "store/segments/000000.seg"))
    table, alive = DocumentTable(segment.document_table(), "a"), weakref.ref(segment)
    del segment
    assert alive() is not None
    assert table.origin(0).source == "segment 0 document 0"
    del table
    assert alive() is None


def test_verify_full_reads_the_document_tables_of_live_segments(tmp_path):
    """Here a table has wrong contents but correct checksums. Only ``verify`` at depth ``full`` detects this."""
    (tmp_path / "segments").mkdir()
    written = write_segment(
        tmp_path / "segments/a.seg", separated([[1, 2]], 10), vocab_size=10, documents=b"this is no table at all"
    )
    publish(tmp_path, Manifest(1, (written,), 10, 64, None, "2026-01-01T00:00:00Z"))
    with open_datastore(tmp_path) as store:
        store.verify("checksums")
        with pytest.raises(Corruption, match=r"a\.seg: the document table is damaged"):
            store.verify("full")
