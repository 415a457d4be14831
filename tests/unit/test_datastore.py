"""Queries with bad input, generations, the manifest, and provenance."""

from __future__ import annotations

import contextlib
import json
import struct
import weakref
from dataclasses import replace

import numpy as np
import pytest
import zstandard

from datastore import ContextIndex, DraftTree, _native, open_datastore
from datastore.documents import (
    BLOCK_DOCUMENTS,
    MAX_METADATA_BYTES,
    MAX_SOURCE_CHARACTERS,
    DocumentTable,
    DocumentTableWriter,
    Origin,
)
from datastore.draft_tree import source_bits, source_name
from datastore.errors import Corruption, InvalidArgument, NotFound, ResourceExhausted, Unavailable, Unsupported
from datastore.manifest import MAX_MANIFEST_BYTES, Manifest, WriterLock, publish, read_manifest
from datastore.segment import separated, write_segment
from tests.stores import make_store


@pytest.fixture
def store(tmp_path):
    return make_store(tmp_path / "store", [[[1, 2, 3, 4], [1, 2, 5]]], vocab_size=10)


@pytest.mark.parametrize(
    ("ids", "bounds", "message"),
    [
        ([1, 10], {}, "token id 10 at index 1 is out of range; the vocabulary has 10 ids"),
        (np.array([-1]), {}, "token id -1 at index 0 is out of range"),
        ([1.5], {}, "index 0 is 1.5, not an integer"),
        (["a"], {}, "index 0 is 'a', not an integer"),
        ("12", {}, "a sequence of integers, not str"),
        (np.zeros((2, 2), int), {}, "one-dimensional array of integers"),
        (np.array([1.0]), {}, "one-dimensional array of integers"),
        ([1], {"max_match": 55}, r"max_match \+ max_depth is 65, above the order depth 64"),
        ([1], {"min_match": 0}, "min_match is 0"),
        ([1], {"min_match": 5, "max_match": 4}, "max_match is 4, below min_match 5"),
        ([1], {"max_depth": 0}, "max_depth is 0"),
        ([1], {"max_nodes": -1}, "max_nodes is -1"),
        ([1], {"max_nodes": 70_000}, "max_nodes is 70000; the limit is 65536"),
        ([1], {"max_nodes": [1, 2]}, "max_nodes has 2 entries for 1 contexts"),
    ],
)
def test_bad_queries_are_refused(store, ids, bounds, message):
    with pytest.raises(InvalidArgument, match=message):
        store.draft_batch([ids], **bounds)


def test_ids_may_come_as_any_integers(store):
    expected = store.draft([1, 2]).tokens.tolist()
    for ids in (
        (1, 2),
        np.array([1, 2], np.int32),
        np.array([9, 1, 2], np.uint16)[1:],
        np.array([1, 0, 2], np.int64)[::2],
    ):
        assert store.draft(ids).tokens.tolist() == expected
    assert store.lookup([]) == (0, 0)
    assert len(store.draft([])) == 0
    assert store.draft_batch([]) == []


def test_a_lookup_may_use_the_whole_order_depth(store):
    assert store.lookup([1, 2], max_match=64) == (2, 2)
    with pytest.raises(InvalidArgument, match="max_match is 65, above the order depth 64 of the datastore; lower it"):
        store.lookup([1, 2], max_match=65)


def test_scores_are_shares_and_budgets_may_differ(store):
    trees = store.draft_batch([[1, 2], [1, 2], [7]], max_nodes=[1, 3, 9])
    assert [len(tree) for tree in trees] == [1, 3, 0]
    assert trees[1].tokens.tolist() == [3, 5, 4]
    assert trees[1].scores.tolist() == [0.5, 0.5, 0.5]
    assert trees[1].depths().tolist() == [1, 1, 2]


def test_a_reader_keeps_the_generation_it_opened(tmp_path):
    old = make_store(tmp_path / "store", [[[1, 2, 3]], [[1, 2, 4]]], vocab_size=10)
    manifest = read_manifest(tmp_path / "store")
    publish(tmp_path / "store", replace(manifest, generation=2, segments=manifest.segments[1:]))
    (tmp_path / "store/segments/000000.seg").unlink()
    assert old.lookup([1, 2]) == (2, 2)
    new = open_datastore(tmp_path / "store")
    assert (new.info()["generation"], new.lookup([1, 2])) == (2, (2, 1))
    old.close()
    with pytest.raises(Unavailable, match="is closed"):
        old.lookup([1])


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.lookup([1]),
        lambda store: store.draft([1]),
        lambda store: store.occurrences([1]),
        lambda store: list(store.documents()),
        lambda store: list(store.origins()),
        lambda store: store.read_document("000000.seg", 0),
        lambda store: store.deleted(),
        lambda store: list(store.deletion_origins()),
        lambda store: store.info(),
        lambda store: store.resident_bytes(),
        lambda store: store.verify(),
    ],
)
def test_a_closed_datastore_says_so(store, ask):
    """Some calls raised errors of Python's, and others answered as an empty datastore would."""
    store.close()
    with pytest.raises(Unavailable, match="store is closed; open it again"):
        ask(store)


@pytest.mark.parametrize("bounds", [{"limit": -1}, {"limit": 2**64}, {"context": -1}])
def test_bounds_of_occurrences_are_checked(store, bounds):
    """Numbers below 0 came back as the binding's own error."""
    ((name, value),) = bounds.items()
    with pytest.raises(InvalidArgument, match=f"^{name} is {value}; it must be 0 to 4294967294$"):
        store.occurrences([1, 2], **bounds)
    assert [found.tokens.tolist() for found in store.occurrences([1, 2], 2**32 - 2, 0)] == [[1, 2], [1, 2]]


def entry(name, tokens, documents):
    return {"name": name, "tokens": tokens, "documents": documents, "bytes": 1, "checksum": ""}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format": 2}, Unsupported, "store/MANIFEST: manifest format 2"),
        ({"format": None}, Corruption, "store/MANIFEST is damaged: its format is None"),
        ({"format": "1"}, Corruption, "store/MANIFEST is damaged: its format is '1'"),
        ({"format": True}, Corruption, "store/MANIFEST is damaged: its format is True"),
        ({"surprise": 1}, Corruption, "unknown keys"),
        ({"generation": 0}, Corruption, "generation is 0"),
        ({"segments": []}, Corruption, "no segment"),
        (
            {"segments": [{"name": "../../etc/passwd", "tokens": 1, "documents": 1, "bytes": 1, "checksum": ""}]},
            Corruption,
            "segment name",
        ),
        ({"deletions": None}, Corruption, "MANIFEST is damaged"),
        ({"deletions": [entry("gone.seg", 1, 1)]}, Corruption, r"gone\.seg is missing"),
        ({"deletions": [entry("000000.seg", 1, 1)]}, Corruption, "it lists a segment twice"),
        ({"deletions": [entry("gone.seg", 3, 1)]}, Corruption, "more tokens are deleted than there are"),
        ({"deletions": [entry("../gone.seg", 1, 1)]}, Corruption, "segment name"),
        ({"vocab_size": 11}, Corruption, "is not the segment that the manifest lists"),
        ({"tokenizer": "ab" * 32}, Corruption, "is not the segment that the manifest lists"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path, change, error, message):
    make_store(tmp_path / "store", [[[1, 2]]], vocab_size=10)
    path = tmp_path / "store/MANIFEST"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(error, match=message):
        open_datastore(tmp_path / "store")


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b'{"format": 1}'])
def test_a_damaged_manifest_is_refused(tmp_path, content):
    make_store(tmp_path / "store", [[[1, 2]]], vocab_size=10)
    (tmp_path / "store/MANIFEST").write_bytes(content)
    with pytest.raises(Corruption, match="MANIFEST"):
        open_datastore(tmp_path / "store")


def test_a_segment_of_another_datastore_is_no_segment_of_this_one(tmp_path):
    """It used to be answered from, with the manifest's numbers beside it."""
    make_store(tmp_path / "ours", [[[1, 2, 3]]], vocab_size=10)
    make_store(tmp_path / "theirs", [[[1, 2, 4]]], vocab_size=10)
    (tmp_path / "theirs/segments/000000.seg").replace(tmp_path / "ours/segments/000000.seg")
    with pytest.raises(Corruption, match="is not the segment that the manifest lists"):
        open_datastore(tmp_path / "ours")


@pytest.mark.parametrize("name", ["MANIFEST", "segments/000000.seg"])
def test_a_folder_in_place_of_a_file_is_damage(tmp_path, name):
    make_store(tmp_path / "store", [[[1, 2, 3]]], vocab_size=10).close()
    (tmp_path / "store" / name).unlink()
    (tmp_path / "store" / name).mkdir()
    with pytest.raises(Corruption, match=f"{name} is (a folder and no file|no regular file); restore it"):
        open_datastore(tmp_path / "store")


def test_no_datastore_says_how_to_build_one(tmp_path):
    with pytest.raises(NotFound, match="nothing is no datastore: there is no such folder; .*suffolk build"):
        open_datastore(tmp_path / "nothing")
    with pytest.raises(NotFound, match="is no datastore: it has no MANIFEST; .*suffolk build"):
        open_datastore(tmp_path)


def test_publish_refuses_a_manifest_of_missing_segments(tmp_path):
    make_store(tmp_path / "store", [[[1, 2]]], vocab_size=10)
    (tmp_path / "store/segments/000000.seg").unlink()
    with pytest.raises(InvalidArgument, match=r"000000\.seg is missing"):
        publish(tmp_path / "store", read_manifest(tmp_path / "store"))


def test_publish_refuses_a_manifest_that_no_reader_would_take(tmp_path):
    """It was published, and then called damaged by all who wanted to open it."""
    make_store(tmp_path / "store", [[[1, 2]]], vocab_size=10).close()
    manifest = read_manifest(tmp_path / "store")
    room = MAX_MANIFEST_BYTES - len((tmp_path / "store/MANIFEST").read_bytes())
    for note, fits in (("x" * (room - 50), True), ("x" * room, False)):
        with (
            contextlib.nullcontext()
            if fits
            else pytest.raises(ResourceExhausted, match="make fewer segments .*compact")
        ):
            publish(tmp_path / "store", replace(manifest, generation=2, settings={"note": note}))
        assert read_manifest(tmp_path / "store").generation == 2


def test_one_writer_at_a_time(tmp_path):
    with WriterLock(tmp_path), pytest.raises(Unavailable, match="another process is writing"), WriterLock(tmp_path):
        pass
    with WriterLock(tmp_path):
        pass


def test_document_table_gives_every_source_back():
    writer = DocumentTableWriter()
    sources = [f"folder/file-{number}.py é" for number in range(1000)] + ["x" * 10_000]
    metadata = [
        {"license": "mit", "stars": number, "fork": number % 2 == 0} if number % 3 else {} for number in range(1001)
    ]
    writer.extend(zip(sources, metadata, strict=True))
    raw = writer.finish()
    table = DocumentTable(raw, "a.seg")
    expected = [Origin(source[:4096], kept) for source, kept in zip(sources, metadata, strict=True)]
    assert [table.origin(number) for number in range(1001)] == expected
    assert list(table.origins(1001)) == expected
    with pytest.raises(Corruption, match=r"a\.seg: the document table is damaged at document 1001"):
        table.origin(1001)
    for wrong in (1000, 1002, 1025):
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
    """Offsets of 32 bits would wrap silently, and the table could never be read again."""

    class Large(bytes):
        def __len__(self):
            return 1 << 31

    writer = DocumentTableWriter()
    writer._blocks = [Large(), Large()]
    with pytest.raises(InvalidArgument, match="takes 4294967296 bytes; it may take 4294967295: keep fewer fields"):
        writer.finish()


def test_a_document_table_keeps_its_segment_mapped(tmp_path):
    """A view of the view that the segment gave let the file be unmapped, and reading then ended the process."""
    make_store(tmp_path / "store", [[[1, 2]]], vocab_size=10).close()
    segment = _native.Segment(str(tmp_path / "store/segments/000000.seg"))
    table, alive = DocumentTable(segment.document_table(), "a"), weakref.ref(segment)
    del segment
    assert alive() is not None
    assert table.origin(0).source == "segment 0 document 0"
    del table
    assert alive() is None


def test_verify_full_reads_the_document_tables_of_live_segments(tmp_path):
    """A table that was written wrongly has right checksums; nothing else that verify does would look at it."""
    (tmp_path / "segments").mkdir()
    written = write_segment(
        tmp_path / "segments/a.seg", separated([[1, 2]], 10), vocab_size=10, documents=b"this is no table at all"
    )
    publish(tmp_path, Manifest(1, (written,), 10, 64, None, "2026-01-01T00:00:00Z"))
    with open_datastore(tmp_path) as store:
        store.verify("checksums")
        with pytest.raises(Corruption, match=r"a\.seg: the document table is damaged"):
            store.verify("full")


def test_context_index_refuses_foreign_ids_whole():
    index = ContextIndex(vocab_size=5)
    index.append([1, 2])
    with pytest.raises(InvalidArgument, match="token id 5"):
        index.append([1, 5])
    assert len(index) == 2
    with pytest.raises(InvalidArgument, match="cannot keep 3 tokens of a context of 2"):
        index.truncate(3)


@pytest.mark.parametrize(
    ("parents", "tokens", "message"),
    [
        ([-1, 1], [1, 2], "node 1 has parent 1"),
        ([-2], [1], "node 0 has parent -2"),
        ([-1], [10], "node 0 has token id 10; the vocabulary has 10 ids"),
        ([-1], [-3], "node 0 has token id -3"),
        ([-1, 0], [1], "parents has 2 entries, tokens has 1"),
    ],
)
def test_what_is_no_tree_is_refused(parents, tokens, message):
    size = len(tokens)
    tree = DraftTree(
        np.array(tokens, np.int32), np.array(parents, np.int32), np.ones(size, np.float32), np.ones(size, np.uint8)
    )
    with pytest.raises(InvalidArgument, match=message):
        tree.validate(10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.array([0.5, np.nan], np.float32)}, "node 1 has score nan; it must be within 0..1"),
        ({"scores": np.array([1.5, 0.5], np.float32)}, "node 0 has score 1.5"),
        ({"scores": np.ones(2)}, "scores is float64 with 1 axes; it must be an array of float32 with one axis"),
        ({"tokens": np.zeros((1, 2), np.int32)}, "tokens is int32 with 2 axes"),
        ({"parents": [-1, 0]}, "parents is list"),
        ({"sources": np.ones(1, np.uint8)}, "sources has 1 entries, tokens has 2"),
    ],
)
def test_columns_that_are_not_as_documented_are_refused(change, message):
    columns = {
        "tokens": np.zeros(2, np.int32),
        "parents": np.array([-1, 0], np.int32),
        "scores": np.ones(2, np.float32),
        "sources": np.ones(2, np.uint8),
    }
    DraftTree(**columns).validate(10)
    with pytest.raises(InvalidArgument, match=message):
        DraftTree(**(columns | change)).validate(10)


def test_a_column_larger_than_memory_is_refused():
    column = np.broadcast_to(np.int32(0), (2**58,))
    with pytest.raises(ResourceExhausted, match="no memory to put the 288230376151711744 entries of tokens in order"):
        DraftTree(column, column, np.ones(1, np.float32), np.ones(1, np.uint8)).validate(10)


def test_head_of_a_tree_is_a_tree():
    tree = DraftTree(
        np.array([1, 2, 3], np.int32), np.array([-1, 0, 1], np.int32), np.ones(3, np.float32), np.ones(3, np.uint8)
    )
    assert tree.head(2).validate(10).depths().tolist() == [1, 2]
    assert tree.head(9) is tree
    assert DraftTree.empty().validate(10).depths().tolist() == []


def test_sources_have_names() -> None:
    names = ["datastore", "prompt-lookup", "datastore+prompt-lookup", ""]
    assert [source_name(bits) for bits in (1, 2, 3, 0)] == names
    assert [source_bits(name) for name in names] == [1, 2, 3, 0]
    with pytest.raises(InvalidArgument, match="source 'datastore\\+oracle': ORACLE is unknown"):
        source_bits("datastore+oracle")
