"""Tests the manifest. Damaged manifests are rejected, and only one writer can publish at a time."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest

from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument, ResourceExhausted, Unavailable, Unsupported
from suffolk.datastore.manifest import MAX_MANIFEST_BYTES, publish, read_manifest, writer_lock
from tests.support.stores import make_store


def entry(name, tokens, documents):
    return {"name": name, "tokens": tokens, "documents": documents, "bytes": 1, "checksum": ""}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"format": 2}, Unsupported, "store/MANIFEST: manifest format 2"),
        ({"format": None}, Corruption, "store/MANIFEST is damaged: its format is None"),
        ({"format": "1"}, Corruption, "store/MANIFEST is damaged: its format is '1'"),
        ({"format": True}, Corruption, "store/MANIFEST is damaged: its format is True"),
        ({"surprise": 1}, Corruption, "unknown key"),
        ({"generation": 0}, Corruption, "generation is 0"),
        ({"segments": []}, Corruption, "segments has 0 values; their number must be 1 or more"),
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
    """Regression: queries used to be answered from a segment of another datastore, with the numbers of this one's manifest."""
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


def test_publish_refuses_a_manifest_of_missing_segments(tmp_path):
    make_store(tmp_path / "store", [[[1, 2]]], vocab_size=10)
    (tmp_path / "store/segments/000000.seg").unlink()
    with pytest.raises(InvalidArgument, match=r"000000\.seg is missing"):
        publish(tmp_path / "store", read_manifest(tmp_path / "store"))


def test_publish_refuses_a_manifest_that_no_reader_would_take(tmp_path):
    """``publish`` refuses a manifest that readers would refuse, because the published datastore could not be opened."""
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
    with writer_lock(tmp_path), pytest.raises(Unavailable, match="another process is writing"), writer_lock(tmp_path):
        pass
    with writer_lock(tmp_path):
        pass
