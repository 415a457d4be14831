"""Tests the ownership of the build folder, and its contents after a failed build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore.errors import InvalidArgument, NotFound, ResourceExhausted, Unavailable
from suffolk.datastore.manifest import Manifest, writer_lock
from suffolk.datastore.segment import SegmentEntry


@pytest.mark.parametrize("name", ["build", "segments", "MANIFEST.tmp", "tokenizer-mine.json"])
def test_a_folder_that_no_build_began_in_is_left_alone(tmp_path: Path, name: str) -> None:
    """Regression: a failing command used to take a user's folder named build for an interrupted build, and removed it."""
    (tmp_path / "text.txt").write_text("text")
    own = tmp_path / "project" / name
    own.mkdir(parents=True)
    (own / "work").write_text("of the user")
    with pytest.raises(InvalidArgument, match=f"holds '{name}' and is no datastore; name a new or empty folder"):
        build(BuildOptions((str(tmp_path / "text.txt"),), tmp_path / "project", tokenizer=str(tmp_path / "gone")))
    assert (own / "work").read_text() == "of the user"
    assert [path.name for path in (tmp_path / "project").iterdir()] == [name]


def fail(store: Path) -> None:
    with open_workspace(store) as workspace:
        workspace.clear()
        raise NotFound("the tokenizer is gone")


@pytest.mark.parametrize("there", [False, True])
def test_a_build_that_fails_at_once_leaves_what_it_found(tmp_path: Path, there: bool) -> None:
    """A failed build leaves the lock that it found.

    Without the lock, a leftover ``segments`` would count as foreign, and later builds would reject the folder.
    """
    store = tmp_path / "new" / "store"
    if there:
        store.mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(NotFound):
            fail(store)
        assert list(tmp_path.iterdir()) == ([tmp_path / "new"] if there else [])
        assert not there or list(store.iterdir()) == []


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as locks:
        yield locks


def test_who_is_refused_leaves_the_folder_to_who_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: ExitStack
) -> None:
    """Regression: a rejected build used to remove the folder of another build. Both had started together in a new folder."""
    store = tmp_path / "store"

    def begin_too(point: str) -> None:
        if point == "workspace.made":
            held.enter_context(writer_lock(store))
            (store / "segments").mkdir()

    monkeypatch.setattr("suffolk.build_index.workspace.failpoint", begin_too)
    with pytest.raises(Unavailable, match="another process is writing"), open_workspace(store):
        pass
    assert sorted(path.name for path in store.iterdir()) == ["LOCK", "segments"]


def test_segments_go_back_when_publishing_fails(tmp_path: Path) -> None:
    """If publishing fails, the segments are moved back, so that the next run need not sort everything again."""
    (tmp_path / "segments").mkdir()
    workspace = Workspace(tmp_path)
    place = workspace.new_segment("g000001-00000.segment")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"sorted")
    (tmp_path / "MANIFEST.tmp").mkdir()  # makes the write fail, like a full disk
    entry = SegmentEntry("g000001-00000.segment", 1, 1, 6, "00000000")
    with pytest.raises(ResourceExhausted, match="MANIFEST cannot be written"):
        workspace.publish(Manifest(1, (entry,), 9, 64, None, "2026-01-01T00:00:00Z"), None)
    assert place.read_bytes() == b"sorted"
    assert list((tmp_path / "segments").iterdir()) == []
