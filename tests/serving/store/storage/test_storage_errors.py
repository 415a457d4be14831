"""What push and pull refuse. Nothing is published then, in storage or on disk."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

import suffolk
from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.progress import WorkProgress
from suffolk.datastore.errors import (
    Corruption,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage.build import build_at
from suffolk.serving.store.storage.generations import list_generations
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import push
from tests.support.copies import require_equal, require_whole
from tests.support.processes import ROOT, SUFFOLK
from tests.support.s3_server import S3Server
from tests.support.stores import append_documents, make_store
from tests.support.waiting import HANG


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote/code"


def test_a_bucket_that_is_not_there(store: Path, tmp_path: Path, s3: S3Server) -> None:
    with pytest.raises(NotFound, match=r"s3://nowhere/code/.*The specified bucket does not exist.*check the URL"):
        push(store, "s3://nowhere/code")
    with pytest.raises(NotFound, match="s3://nowhere/code holds no datastore"):
        pull("s3://nowhere/code", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_names_that_stores_read_differently_are_refused_by_every_command(
    store: Path, tmp_path: Path, s3: S3Server, url: str
) -> None:
    bucket = url.removesuffix("/code")
    for odd, message in (
        (f"{bucket}//code", f"has an empty name between slashes; write {bucket}/code"),
        (f"{bucket}/code//", f"has an empty name between slashes; write {bucket}/code"),
        (f"s3:///{bucket[5:]}/code", f"has an empty name between slashes; write {bucket}/code"),
        (f"{bucket}/a/../code", f"has the name '..' between slashes; write {bucket}/code"),
        (f"file://{tmp_path}/a/./b", f"has the name '.' between slashes; write file://{tmp_path}/a/b"),
        ("file://folder/code", "takes a path from the root, as in file:///folder/code"),
        (f"s3:/{bucket[5:]}/code", "not the URL of a place in storage"),
    ):
        options = BuildOptions((odd,), tmp_path / "built", vocab_size=6)
        for call in (
            lambda odd=odd: push(store, odd),
            lambda odd=odd: pull(odd, tmp_path / "copy"),
            lambda odd=odd: list_generations(odd),
            lambda options=options: build(options),
            lambda odd=odd, options=options: build_at(odd, options, None, 3, WorkProgress()),
        ):
            with pytest.raises(InvalidArgument, match=re.escape(message)):
                call()
    assert RemoteFolder(bucket).sizes() == {}
    assert not (tmp_path / "copy").exists()


def test_a_push_reads_its_generation_back(store: Path, url: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteFolder, "create", lambda self, name, content: True)  # a store that loses what it takes
    with pytest.raises(Unavailable, match="000001.json: was written, but the store does not list it"):
        push(store, url)


def test_wrong_credentials(store: Path, tmp_path: Path, s3: S3Server, url: str) -> None:
    with s3.checking_credentials():
        for call in (lambda: push(store, url), lambda: pull(url, tmp_path / "copy")):
            with pytest.raises(
                PermissionDenied, match=r"access denied \(The AWS Access Key Id .* check the credentials"
            ):
                call()
    assert RemoteFolder(url).sizes() == {}
    assert not (tmp_path / "copy").exists()


def test_a_flipped_byte_in_storage(store: Path, tmp_path: Path, s3: S3Server, url: str) -> None:
    push(store, url)
    pull(url, tmp_path / "copy")
    old = read_manifest(tmp_path / "copy")
    added = append_documents(store, [[1, 2, 3, 4]] * 50).segments[-1]
    push(store, url)
    damaged = f"{url.removeprefix('s3://')}/{SEGMENTS_NAME}/{added.name}"
    files = fsspec.filesystem("s3")
    content = bytearray(files.cat_file(damaged))
    content[400] ^= 1
    files.pipe_file(damaged, bytes(content))
    with pytest.raises(Corruption, match=f"{added.name} is damaged, there or on the way; run the command again"):
        pull(url, tmp_path / "copy")
    assert read_manifest(tmp_path / "copy") == old
    assert not list((tmp_path / "copy" / SEGMENTS_NAME).glob(".*"))
    files.rm_file(damaged)
    assert push(store, url).sent_files == 1
    pull(url, tmp_path / "copy")
    require_equal(store, tmp_path / "copy")


def test_a_segment_that_is_gone_or_short(store: Path, tmp_path: Path, place: str) -> None:
    push(store, place)
    segment = tmp_path / "remote/code" / SEGMENTS_NAME / read_manifest(store).segments[1].name
    os.truncate(segment, 1000)
    with pytest.raises(Corruption, match=r"has 1000 bytes and not \d+; push the datastore again"):
        pull(place, tmp_path / "copy")
    segment.unlink()
    with pytest.raises(NotFound, match=f"{segment.name} is missing; push the datastore again"):
        pull(place, tmp_path / "copy")
    report = push(store, place)
    assert (report.published, report.generation, report.sent_files) == (False, 1, 1)
    pull(place, tmp_path / "copy")
    require_equal(store, tmp_path / "copy")


def test_damage_on_disk_is_not_sent(store: Path, tmp_path: Path, place: str) -> None:
    entry = read_manifest(store).segments[1]
    with open(store / SEGMENTS_NAME / entry.name, "r+b") as file:
        file.seek(5000)
        file.write(b"\xff\xff")
    with pytest.raises(Corruption, match=entry.name):
        push(store, place)
    assert RemoteFolder(place).sizes() == {}


def test_another_tokenizer(store: Path, tmp_path: Path, place: str) -> None:
    push(store, place)
    other = tmp_path / "other"
    make_store(other, [[[1, 2, 3]]], vocab_size=6, tokenizer="ab" * 32).close()
    with pytest.raises(
        Unsupported, match=f"{place} holds a datastore with the tokenizer [0-9a-f]+, and the given one has abab"
    ):
        push(other, place)
    assert require_whole(place) == 1
    with pytest.raises(Unsupported, match=f"{other} holds a datastore with the tokenizer abab"):
        pull(place, other, replace=True)
    assert read_manifest(other).tokenizer == "ab" * 32


def test_another_version(store: Path, tmp_path: Path, place: str) -> None:
    push(store, place)
    path = tmp_path / "remote/code/generations/000001.json"
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"format": 2}))
    for call in (lambda: pull(place, tmp_path / "copy"), lambda: push(store, place)):
        with pytest.raises(Unsupported, match=r"000001.json: manifest format 2; this program reads format 1"):
            call()
    path.write_bytes(b'{"format": 1')
    with pytest.raises(Corruption, match=r"000001.json is damaged"):
        pull(place, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_place_that_holds_something_else(store: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "remote/code").mkdir(parents=True)
    (tmp_path / "remote/code/letters.txt").touch()
    with pytest.raises(InvalidArgument, match="holds 'letters.txt' and is no datastore"):
        push(store, place)


def test_a_folder_that_is_no_copy_is_replaced_only_on_request(store: Path, tmp_path: Path, place: str) -> None:
    push(store, place)
    own = tmp_path / "own"
    (tmp_path / "text.txt").write_text("the cat sat")
    options = BuildOptions((str(tmp_path / "text.txt"),), own, tokenizer=str(next(store.glob("tokenizer-*"))))
    build(options)
    with pytest.raises(
        InvalidArgument, match=f"{own} was not pulled from {place}; name a new folder, or give --replace"
    ):
        pull(place, own)
    with pytest.raises(InvalidArgument, match="is no datastore; name a new or empty folder"):
        pull(place, tmp_path)
    pull(place, own, replace=True)
    build(replace(options, mode="append"))
    append_documents(store, [[2, 3]])
    push(store, place)
    with pytest.raises(InvalidArgument, match=f"{own} was changed after it was pulled"):
        pull(place, own)
    push(own, place)  # now what it holds is there too
    push(store, place)
    assert pull(place, own).generation == 4
    push(store, f"{place}2")
    with pytest.raises(InvalidArgument, match=f"belongs to {place}, and was not pulled from {place}2"):
        pull(f"{place}2", own)


def test_a_live_datastore_is_not_replaced(store: Path, tmp_path: Path, place: str) -> None:
    push(store, place)
    with suffolk.create(tmp_path / "live", vocab_size=6) as live:
        live.append([1, 2, 3])
        live.flush()
    with pytest.raises(InvalidArgument, match="is a live datastore, whose documents a pull would lose"):
        pull(place, tmp_path / "live", replace=True)


def test_segments_of_one_name_with_other_content(store: Path, tmp_path: Path, place: str) -> None:
    """Early versions named segments by number alone."""
    push(store, place)
    rebuilt = tmp_path / "rebuilt"
    make_store(rebuilt, [[[1, 2, 3]]], vocab_size=6, tokenizer=read_manifest(store).tokenizer).close()
    for call, holder in ((lambda: push(rebuilt, place), place), (lambda: pull(place, rebuilt, replace=True), rebuilt)):
        with pytest.raises(InvalidArgument, match=f"{holder} has another segment of the name 000000.seg"):
            call()
    assert require_whole(place) == 1
    assert len(read_manifest(rebuilt).segments) == 1


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("/tmp/code",), InvalidArgument, "not the URL of a place in storage; the forms are s3://"),
        (("zzz://code",), InvalidArgument, "zzz://code: zzz:// is not supported; the forms of URLs are s3://"),
        (
            ("ftp://host/code",),
            InvalidArgument,
            "ftp://host/code: ftp:// is not supported; the forms of URLs are s3://",
        ),
        (("s3://",), InvalidArgument, "s3://: names no bucket or folder; the forms of URLs are s3://BUCKET/FOLDER"),
        (("gs://bucket/code",), Unsupported, r"gcsfs.*; pip install"),
    ],
)
def test_urls(store: Path, words: tuple[str], error: type[SuffolkError], message: str) -> None:
    with pytest.raises(error, match=message):
        push(store, *words)


def on_disk(options: str, disk: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with a file system of its own at ``disk``."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare to mount a disk")
    script = f'mount -t tmpfs -o {options} tmpfs {disk} && exec "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *SUFFOLK, *words],
        capture_output=True, text=True, timeout=HANG, cwd=ROOT, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this system lets no one mount")
    return done


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("size=65m", "the pull needs 3.0 MB of disk, and 1.0 MB may be used; free space, or choose another folder"),
        ("ro", "cannot be written (Read-only file system); choose another folder"),
    ],
)
def test_a_disk_that_is_full_or_read_only(store: Path, tmp_path: Path, place: str, options: str, message: str) -> None:
    push(store, place)
    disk = tmp_path / "disk"
    disk.mkdir()
    done = on_disk(options, disk, "pull", place, str(disk / "copy"))
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[-1]


def test_storage_that_is_full_or_read_only(store: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    for options, message in (("size=1m", "the disk is full; free space"), ("ro", "cannot be written")):
        done = on_disk(options, disk, "push", str(store), f"file://{disk}/code")
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr.splitlines()[-1]
