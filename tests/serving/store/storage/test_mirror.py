"""A copy that follows the newest generation in storage while it is served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import suffolk
from suffolk.datastore.errors import InvalidArgument, NotFound, Unavailable
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest, writer_lock
from suffolk.serving.store.storage.generations import roll_back
from suffolk.serving.store.storage.mirror import MirroredDatastore
from suffolk.serving.store.storage.push import push
from tests.serving.store.storage.test_generations import built
from tests.support.copies import require_equal
from tests.support.s3_server import S3Server
from tests.support.waiting import until

POLL = 0.1


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


@pytest.fixture
def store(tmp_path: Path, place: str) -> Path:
    path = built(tmp_path, "store", 1)
    push(path, place)
    return path


@pytest.fixture
def mirror(store: Path, tmp_path: Path, place: str) -> Iterator[MirroredDatastore]:
    with MirroredDatastore(place, tmp_path / "copy", poll_seconds=POLL) as datastore:
        yield datastore


def test_new_generations_are_served_and_old_files_dropped(
    tmp_path: Path, store: Path, mirror: MirroredDatastore, place: str
) -> None:
    require_equal(store, tmp_path / "copy")
    assert mirror.generation == 1
    built(tmp_path, "store", 2, "replace")
    push(store, place)
    until(lambda: mirror.generation == 2)
    assert mirror.problem == ""
    until(lambda: len(list((tmp_path / "copy" / SEGMENTS_NAME).iterdir())) == 1)
    require_equal(store, tmp_path / "copy")
    assert mirror.lookup("document 3").length > 1
    roll_back(place, 1)
    until(lambda: mirror.generation == 3)


def test_a_damaged_generation_is_not_served_until_it_is_repaired(
    tmp_path: Path, store: Path, mirror: MirroredDatastore, place: str
) -> None:
    built(tmp_path, "store", 2, "append")
    segment = read_manifest(store).segments[-1].name
    remote = tmp_path / "remote"
    (tmp_path / "aside").mkdir()
    push(store, f"file://{tmp_path}/aside")
    damaged = bytearray((store / SEGMENTS_NAME / segment).read_bytes())
    damaged[700] ^= 1
    (remote / SEGMENTS_NAME / segment).write_bytes(damaged)
    push(store, place)
    until(lambda: f"{segment} is damaged" in mirror.problem)
    assert (mirror.generation, read_manifest(tmp_path / "copy").generation) == (1, 1)
    (remote / SEGMENTS_NAME / segment).unlink()
    push(store, place)
    until(lambda: mirror.generation == 2)
    until(lambda: mirror.problem == "")


def test_a_copy_is_served_while_storage_is_away(store: Path, tmp_path: Path, s3: S3Server, url: str) -> None:
    push(store, url)
    MirroredDatastore(url, tmp_path / "copy").close()
    s3.proxy.refuse_after(0)
    assert os.listdir(tmp_path / "copy")
    with MirroredDatastore(url, tmp_path / "copy", poll_seconds=POLL) as mirror:
        assert (mirror.generation, "does not answer as it should" in mirror.problem) == (1, True)
        s3.proxy.heal()
        until(lambda: mirror.problem == "")
    s3.proxy.refuse_after(0)
    with pytest.raises(Unavailable):
        MirroredDatastore(url, tmp_path / "another")


def test_a_cache_that_another_process_fills(store: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "copy").mkdir()
    with writer_lock(tmp_path / "copy"), pytest.raises(Unavailable, match="another process is writing"):
        MirroredDatastore(place, tmp_path / "copy")
    MirroredDatastore(place, tmp_path / "copy").close()
    with writer_lock(tmp_path / "copy"), MirroredDatastore(place, tmp_path / "copy") as mirror:
        assert mirror.generation == 1


def test_open_makes_a_copy(store: Path, tmp_path: Path, place: str) -> None:
    with suffolk.open(place, cache=tmp_path / "copy") as datastore:
        assert datastore.lookup("document 3").length > 1
    with suffolk.open(place, cache=tmp_path / "copy", watch=True) as datastore:
        assert isinstance(datastore, MirroredDatastore)
    with pytest.raises(InvalidArgument, match="is searched in a copy; make one with 'suffolk pull'"):
        suffolk.open(place)
    with pytest.raises(InvalidArgument, match="storage takes no appends"):
        suffolk.open(place, append=True)
    advice = "residency has no effect with append; leave it out, or give append=LiveSettings"
    with pytest.raises(InvalidArgument, match=advice):
        suffolk.open(store, residency="warm", append=True)
    with pytest.raises(InvalidArgument, match="watch has no effect with append; leave it out$"):
        suffolk.open(store, watch=True, append=True)
    with pytest.raises(InvalidArgument, match="residency has no effect with append; leave it out$"):
        suffolk.open("grpc://127.0.0.1:1/chat", residency="warm", append=True)
    with pytest.raises(InvalidArgument, match="append holds settings, and the service has its own"):
        suffolk.open("grpc://127.0.0.1:1/chat", append=suffolk.LiveSettings())
    with pytest.raises(InvalidArgument, match="append is 1; give True, or LiveSettings"):
        suffolk.open(store, append=1)
    assert not (store / "live").exists()
    with pytest.raises(InvalidArgument, match="only a datastore in storage has one"):
        suffolk.open(store, cache=tmp_path)
    with pytest.raises(NotFound, match="holds no datastore"):
        suffolk.open(f"{place}/nothing", cache=tmp_path / "new")
