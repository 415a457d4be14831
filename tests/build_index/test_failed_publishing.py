"""Tests publishing that fails or is interrupted. Readers can still open the datastore, and finished work is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import ResourceExhausted, Unavailable
from suffolk.datastore.manifest import read_manifest
from tests.support.building import make_texts, write_jsonl, write_tokenizer

Change = Callable[[Path], object]


def options(folder: Path, name: str, mode: str = "new") -> BuildOptions:
    return BuildOptions(
        (str(folder / name),), folder / "store", tokenizer=str(folder / "tokenizer"), mode=mode, segment_tokens=1
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two corpora and a datastore of the first."""
    write_tokenizer(tmp_path)
    write_jsonl(tmp_path / "a.jsonl", make_texts(4))
    write_jsonl(tmp_path / "b.jsonl", make_texts(4, seed=2))
    build(options(tmp_path, "a.jsonl"))
    build(options(tmp_path, "b.jsonl", "append"))
    return tmp_path


def fail_flush(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make renames into ``folder`` fail, as on a full disk."""
    flush, place = os.fsync, os.stat(folder).st_ino

    def refuse(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == place:
            raise OSError(5, "Input/output error")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)


@pytest.mark.parametrize(
    ("change", "documents"),
    [
        (lambda folder: build(options(folder, "b.jsonl", "append")), 12),
        (lambda folder: delete(folder / "store", where=["source~*b.jsonl*"]), 4),
        (lambda folder: compact(folder / "store"), 8),
    ],
)
def test_a_generation_whose_sync_failed_can_be_opened(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Change, documents: int
) -> None:
    """Regression: a failed flush used to remove segments that the published manifest already named."""
    store = folder / "store"
    with monkeypatch.context() as patched:
        fail_flush(patched, store)
        with pytest.raises(
            ResourceExhausted, match="its names cannot be synced to the disk .*; check the disk, and run"
        ):
            change(folder)
    for _ in range(2):
        assert read_manifest(store).generation == 3
        with open_datastore(store) as opened:
            opened.verify("full")
            assert len(list(opened.documents())) == documents
        if documents == 12:
            change(folder)  # a resumed build, which finds that it is already published


def test_a_flush_that_fails_before_the_manifest_gives_the_segments_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the system's error used to escape.

    The finished segments stayed in a folder without a manifest that names them.
    """
    store = folder / "store"
    before = set((store / "segments").iterdir())
    with monkeypatch.context() as patched:
        fail_flush(patched, store / "segments")
        with pytest.raises(ResourceExhausted, match="check the disk"):
            build(options(folder, "b.jsonl", "append"))
    assert set((store / "segments").iterdir()) == before
    assert build(options(folder, "b.jsonl", "append")).resumed_segments == 1


def stop_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Ctrl-C at a named point, after all finished segments have left the work folder."""

    def stop(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    monkeypatch.setattr("suffolk.build_index.workspace.failpoint", stop)
    monkeypatch.setattr("suffolk.datastore.files.failpoint", stop)


@pytest.mark.parametrize("point", ["publish.moved", "MANIFEST.created", "MANIFEST.renamed"])
def test_ctrl_c_while_publishing_keeps_the_finished_segments(
    folder: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Regression: after Ctrl-C, the work folder held no segment and was removed with its journal.

    The next run sorted everything again.
    """
    with monkeypatch.context() as patched:
        stop_at(patched, point)
        with pytest.raises(KeyboardInterrupt):
            build(options(folder, "b.jsonl", "append"))
    assert build(options(folder, "b.jsonl", "append")).resumed_segments == 1
    assert read_manifest(folder / "store").generation == 3
    with open_datastore(folder / "store") as opened:
        assert len(list(opened.documents())) == 12


@pytest.mark.parametrize(
    "change",
    [lambda folder: delete(folder / "store", where=["source~*b.jsonl*"]), lambda folder: compact(folder / "store")],
)
def test_a_build_stopped_while_publishing_is_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    """A deletion or compaction must not run between a stopped build and its end.

    It would take the generation of the build and remove its segments.
    """

    def die(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("suffolk.build_index.workspace.publish", die)
        with pytest.raises(KeyboardInterrupt):
            build(options(folder, "b.jsonl", "append"))
    with pytest.raises(Unavailable, match="holds an interrupted build; finish it"):
        change(folder)
    assert build(options(folder, "b.jsonl", "append")).resumed_segments == 1
    begun = folder / "store" / "build"
    (begun / "segments").mkdir(parents=True)
    (begun / "segments" / "g000004-00000.segment.tmp").write_bytes(b"half a segment")
    (begun / "journal.jsonl").write_text('{"settings": {"generation": 4}}\n')
    change(folder)  # that build had finished nothing
    assert read_manifest(folder / "store").generation == 4
