"""Generations at a URL: numbers, pruning, rollbacks, and pushes at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage import generations as prune
from suffolk.serving.store.storage.generations import (
    generation_numbers,
    list_generations,
    publish_generation,
    roll_back,
)
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import push
from tests.support.building import make_texts, write_jsonl, write_tokenizer
from tests.support.copies import require_equal, require_whole

PLACES = ["memory", "file", "s3"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place in each kind of storage."""
    if request.param == "s3":
        return str(request.getfixturevalue("url"))
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}/remote"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


def built(folder: Path, name: str, seed: int, mode: str = "new") -> Path:
    """A datastore of a few documents in ``folder/name``."""
    corpus = write_jsonl(folder / f"{seed}.jsonl", make_texts(8, seed=seed))
    build(BuildOptions((str(corpus),), folder / name, tokenizer=write_tokenizer(folder), mode=mode))
    return folder / name


def test_every_change_of_a_datastore_reaches_its_copy(tmp_path: Path, place: str) -> None:
    store, copy = built(tmp_path, "store", 1), tmp_path / "copy"
    for number, change in enumerate(
        (
            lambda: None,
            lambda: built(tmp_path, "store", 2, "append"),
            lambda: delete(store, where=["source~*1.jsonl:3"]),
            lambda: compact(store),
            lambda: built(tmp_path, "store", 3, "replace"),
        ),
        1,
    ):
        change()
        assert push(store, place).generation == number
        assert pull(place, copy).generation == number
        require_equal(store, copy)
    names = set(RemoteFolder(place).sizes(SEGMENTS_NAME))
    assert names == {entry.name for each in list_generations(place) for entry in each.files()}
    assert generation_numbers(RemoteFolder(place)) == [3, 4, 5]


def test_pushes_from_new_folders_go_on_counting(tmp_path: Path, folder: str) -> None:
    for seed in (1, 2, 3):
        store = built(tmp_path, f"night-{seed}", seed)
        assert read_manifest(store).generation == 1
        assert push(store, folder, keep=2).generation == seed
        pull(folder, tmp_path / "copy")
        require_equal(store, tmp_path / "copy")
    assert generation_numbers(RemoteFolder(folder)) == [2, 3]


def test_only_kept_generations_and_their_segments_stay(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(tmp_path, "store", 1)
    push(store, folder, keep=2)
    stray = RemoteFolder(folder)
    for name in ("g000009-00000-12345678.segment", "notes.txt"):
        (tmp_path / "remote" / SEGMENTS_NAME / name).touch()
    for seed in (2, 3):
        built(tmp_path, "store", seed, "replace")
        removed = push(store, folder, keep=2).removed_files
    assert removed == 1  # that of generation 1; the stray one may be from a push that still runs
    assert len(stray.sizes(SEGMENTS_NAME)) == 4
    monkeypatch.setattr(prune, "STRAY_SECONDS", -1.0)
    assert push(store, folder, keep=1).removed_files == 2
    assert set(stray.sizes(SEGMENTS_NAME)) == {read_manifest(store).segments[0].name, "notes.txt"}
    with pytest.raises(InvalidArgument, match="keep is 0; it must be 1 or more"):
        push(store, folder, keep=0)


def test_an_old_generation_is_pulled_and_rolled_back_to(tmp_path: Path, folder: str) -> None:
    store, copy = built(tmp_path, "store", 1), tmp_path / "copy"
    first = push(store, folder).generation
    kept = built(tmp_path, "kept", 1)
    built(tmp_path, "store", 2, "replace")
    push(store, folder)
    assert pull(folder, copy).generation == 2
    assert pull(folder, copy, generation=first).generation == 1
    assert read_manifest(copy).segments == read_manifest(kept).segments
    assert roll_back(folder, first).generation == 3
    assert roll_back(folder, first).generation == 3  # it is the newest already
    assert pull(folder, copy).generation == 3
    assert read_manifest(copy).segments == read_manifest(kept).segments
    with pytest.raises(NotFound, match="has no generation 9; it has 1, 2, 3"):
        roll_back(folder, 9)
    with pytest.raises(NotFound, match="has no generation 9; it has 1, 2, 3"):
        pull(folder, copy, generation=9)


@pytest.mark.parametrize("place", ["file", "s3"], indirect=True)  # memory:// looks first and writes then
def test_of_pushes_at_the_same_time_one_publishes(tmp_path: Path, place: str) -> None:
    manifest = read_manifest(built(tmp_path, "store", 1))
    remote, start = RemoteFolder(place), threading.Barrier(6)

    def publish(number: int) -> Manifest:
        start.wait()
        return publish_generation(remote, replace(manifest, created=f"pusher {number}"), 1)

    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(publish, number) for number in range(6)]
    assert list_generations(place) == [call.result() for call in calls if call.exception() is None]
    problem = "another process published generation 1 at the same time; run the command again"
    assert [problem in str(call.exception()) for call in calls].count(True) == 5


def test_a_repeated_write_is_no_other_push(tmp_path: Path, folder: str) -> None:
    """A client repeats a write whose answer was lost."""
    manifest, remote = read_manifest(built(tmp_path, "store", 1)), RemoteFolder(folder)
    assert publish_generation(remote, manifest, 1) == publish_generation(remote, manifest, 1)


def test_a_pull_takes_the_newest_generation_if_a_push_removes_its_own(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(tmp_path, "store", 1)
    push(store, folder)
    fetch = RemoteFolder.begin_read

    def after_a_push(remote: RemoteFolder, name: str, start: int, end: int) -> Future[bytes]:
        monkeypatch.setattr(RemoteFolder, "begin_read", fetch)
        built(tmp_path, "store", 2, "replace")
        push(store, folder, keep=1)
        return fetch(remote, name, start, end)

    monkeypatch.setattr(RemoteFolder, "begin_read", after_a_push)
    assert pull(folder, tmp_path / "copy").generation == 2
    require_equal(store, tmp_path / "copy")


def test_a_push_sends_again_what_another_push_removed(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other push removes an old generation, and a segment that this one had found there."""
    store = built(tmp_path, "store", 1)
    push(store, folder)
    other = built(tmp_path, "other", 2)
    push(other, folder)

    def meanwhile(point: str) -> None:
        if point == "push.sent":
            monkeypatch.setattr("suffolk.serving.store.storage.push.failpoint", lambda point: None)
            prune.prune(RemoteFolder(folder), 1)

    monkeypatch.setattr("suffolk.serving.store.storage.push.failpoint", meanwhile)
    assert push(store, folder).generation == 3
    assert require_whole(folder) == 3
