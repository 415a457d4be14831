"""A snapshot holds what was acknowledged before it began, while appends, flushes and deletions go on."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, PermissionDenied, Unavailable
from suffolk.datastore.manifest import LOCK_NAME, writer_lock
from suffolk.serving.store.live_store.snapshot import snapshot
from suffolk.serving.store.live_store.store import LiveStore, open_live_store
from tests.serving.store.live_store.conftest import OpenStore
from tests.support.stores import make_word_store


def numbers(store: LiveStore) -> list[int]:
    """The numbers that ``fill`` appended."""
    found = [each.tokens.tolist() for each in store.documents()]
    return sorted(first * 50 + second for first, second in found)


def fill(store: LiveStore, begin: int, end: int) -> None:
    for number in range(begin, end):
        store.append([number // 50, number % 50], group="g" if number % 3 == 0 else None)


@pytest.mark.parametrize("link", [False, True])
def test_a_snapshot_is_a_store_of_its_own(open_store: OpenStore, tmp_path: Path, link: bool) -> None:
    store = open_store()
    fill(store, 0, 20)
    report = snapshot(store.path, tmp_path / "first", link)
    assert (report.generation, report.files) == (0, 3)
    store.flush()
    fill(store, 20, 30)
    report = snapshot(store.path, tmp_path / "second", link)
    assert report.generation == 1
    assert report.bytes == sum(path.stat().st_size for path in (tmp_path / "second").rglob("*") if path.is_file())
    fill(store, 30, 40)
    shutil.rmtree(store.path)
    for name, end in (("first", 20), ("second", 30)):
        for _ in range(2):
            with open_live_store(tmp_path / name) as copy:
                assert numbers(copy) == list(range(end))
                assert copy.group_stats("g").documents == len(range(0, end, 3))
                copy.flush()


@pytest.mark.parametrize("has_lock", [True, False])
def test_a_store_on_read_only_storage(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_lock: bool
) -> None:
    """Regression: the snapshot wanted to write to the lock of the store."""
    store = open_store()
    fill(store, 0, 20)
    store.flush()
    store.close()
    if not has_lock:
        (store.path / LOCK_NAME).unlink()
    opened = os.open

    def refuse(path: Any, flags: int, *mode: Any, **more: Any) -> int:
        if Path(path).is_relative_to(store.path) and flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert snapshot(store.path, tmp_path / "copy").generation == 1
    with pytest.raises(PermissionDenied, match="Read-only file system"), writer_lock(store.path):
        pass
    with open_live_store(tmp_path / "copy") as copy:
        assert numbers(copy) == list(range(20))


def test_snapshots_during_changes_hold_all_that_was_acknowledged(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    store.writer.log.file_bytes = 2000
    acknowledged, stop = [0], threading.Event()

    def change() -> None:
        while not stop.is_set():
            fill(store, acknowledged[0], acknowledged[0] + 1)
            acknowledged[0] += 1
            if acknowledged[0] % 150 == 0:
                with suppress(Unavailable):  # a snapshot begins at this moment
                    store.scrub() if acknowledged[0] % 450 == 0 else store.flush()
            if acknowledged[0] >= 2400:
                return

    thread = threading.Thread(target=change)
    thread.start()
    for attempt in range(6):
        before = acknowledged[0]
        snapshot(store.path, tmp_path / f"copy-{attempt}")
        with open_live_store(tmp_path / f"copy-{attempt}") as copy:
            found = numbers(copy)
            assert found == list(range(len(found)))
            assert len(found) >= before
    stop.set()
    thread.join()
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_datastore_without_live_documents_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_word_store(tmp_path / "store")
    assert main(["snapshot", store, str(tmp_path / "copy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["generation"] == 1
    with open_datastore(tmp_path / "copy") as copy:
        copy.verify("full")
        assert copy.lookup("the cat").count == 2
    assert main(["snapshot", store, str(tmp_path / "other")]) == 0
    assert f"copied {store} (generation 1) to {tmp_path}/other: 5 files" in capsys.readouterr().out


def test_what_cannot_be_copied_leaves_nothing(tmp_path: Path) -> None:
    store = make_word_store(tmp_path / "store")
    with pytest.raises(NotFound, match="is no datastore"):
        snapshot(tmp_path / "none", tmp_path / "copy")
    with pytest.raises(InvalidArgument, match="exists; name a new folder"):
        snapshot(store, store)
    with pytest.raises(InvalidArgument, match="store/copy is inside the datastore .*; name a folder outside of it"):
        snapshot(store, tmp_path / "store" / "copy")
    with writer_lock(Path(store)), pytest.raises(Unavailable, match="another process is writing"):
        snapshot(store, tmp_path / "copy", wait=0.1)
    segment = next((tmp_path / "store" / "segments").iterdir())
    os.truncate(segment, 1000)
    with pytest.raises(Corruption, match=f"^{segment}: the file has 1000 bytes"):
        snapshot(store, tmp_path / "copy")
    segment.unlink()
    with pytest.raises(Corruption, match="is missing; restore it from a copy"):
        snapshot(store, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
