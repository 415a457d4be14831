"""Push and pull with a real S3 server, over connections that break."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from suffolk.datastore import remote_folder
from suffolk.datastore.errors import NotFound, Unavailable
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage import fetch
from suffolk.serving.store.storage.generations import missing_segments
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import push
from tests.support.copies import require_equal, require_whole
from tests.support.interrupts import default_interrupts
from tests.support.processes import ROOT, SUFFOLK
from tests.support.s3_server import S3Server
from tests.support.stores import append_documents, random_documents
from tests.support.waiting import HANG


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PART_BYTES", 1 << 16)


def test_a_copy_is_equal_and_only_new_segments_travel(store: Path, tmp_path: Path, s3: S3Server, url: str) -> None:
    report = push(store, url)
    assert (report.generation, report.sent_files, report.sent_bytes) == (1, 3, report.bytes)
    pull(url, tmp_path / "copy")
    require_equal(store, tmp_path / "copy")

    added = append_documents(store, random_documents(20, 500, 9, 6)).segments[-1].bytes
    before = s3.proxy.bytes
    report = push(store, url)
    assert (report.generation, report.sent_files, report.sent_bytes) == (2, 1, added)
    fetched = pull(url, tmp_path / "copy")
    assert (fetched.generation, fetched.fetched_files, fetched.fetched_bytes) == (2, 1, added)
    assert 2 * added < s3.proxy.bytes - before < 2 * added + 100_000
    require_equal(store, tmp_path / "copy")
    assert not push(store, url).published
    assert not pull(url, tmp_path / "copy").changed


@pytest.mark.usefixtures("small_parts")
def test_cut_connections_are_survived(store: Path, tmp_path: Path, s3: S3Server, url: str) -> None:
    s3.proxy.cut_after(500_000, 400_000, 900_000)
    push(store, url)
    s3.proxy.cut_after(500_000, 400_000, 900_000)
    pull(url, tmp_path / "copy")
    require_equal(store, tmp_path / "copy")
    assert s3.proxy.cuts >= 4


def test_a_push_goes_on_after_an_outage(store: Path, tmp_path: Path, s3: S3Server, url: str) -> None:
    push(store, url)
    old = read_manifest(store)
    append_documents(store, random_documents(20, 400, 10, 6))
    append_documents(store, random_documents(100, 4000, 11, 6))
    s3.proxy.refuse_after(read_manifest(store).segments[-1].bytes - 100_000)
    with pytest.raises(Unavailable, match=r"does not answer as it should .* run the command again"):
        push(store, url)
    s3.proxy.heal()

    assert require_whole(url) == 1
    pull(url, tmp_path / "copy")
    assert read_manifest(tmp_path / "copy").segments == old.segments
    missing = missing_segments(RemoteFolder(url), read_manifest(store))
    assert read_manifest(store).segments[-1] in missing
    report = push(store, url)
    assert (report.generation, report.sent_files) == (2, len(missing))
    pull(url, tmp_path / "copy")
    require_equal(store, tmp_path / "copy")


@pytest.mark.usefixtures("small_parts")
def test_a_pull_goes_on_in_the_middle_of_a_file(
    store: Path, tmp_path: Path, s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_documents(store, random_documents(300, 4000, 10, 6))
    push(store, url)
    copy = tmp_path / "copy"
    *before, large = read_manifest(store).segments
    s3.proxy.refuse_after(sum(entry.bytes for entry in before) + 2_000_000)  # of these 1 MB may be read ahead
    with pytest.raises(Unavailable):
        pull(url, copy)
    s3.proxy.heal()

    assert not (copy / "MANIFEST").exists()
    there = (copy / SEGMENTS_NAME / f".{large.name}.part").stat().st_size
    assert fetch.PART_BYTES < there < large.bytes
    fetched: list[tuple[str, int]] = []
    read = RemoteFolder.begin_read
    monkeypatch.setattr(RemoteFolder, "begin_read", lambda *call: (fetched.append(call[1:3]), read(*call))[1])
    pull(url, copy)
    assert fetched[0] == (f"{SEGMENTS_NAME}/{large.name}", there)
    require_equal(store, copy)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_repeated_end_of_an_upload_counts_if_the_object_is_there(
    tmp_path: Path, s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """If an answer is lost, the client repeats the request. Some servers have forgotten the upload by then."""
    source = tmp_path / "file"
    source.write_bytes(bytes(17 << 20))
    core = pytest.importorskip("s3fs.core")
    request = core.S3FileSystem._call_s3

    async def repeated(files: object, method: str, *words: object, **fields: Any) -> object:
        if method == "complete_multipart_upload":
            place = {name: fields[name] for name in ("Bucket", "Key")}
            if is_done:
                await request(files, method, **fields)
                # now this server, too, no longer knows the upload
                await request(files, "put_object", **place, Body=source.read_bytes())
            else:
                await request(files, "abort_multipart_upload", **place, UploadId=fields["UploadId"])
        return await request(files, method, *words, **fields)

    monkeypatch.setattr(core.S3FileSystem, "_call_s3", repeated)
    folder = RemoteFolder(url)
    if is_done:
        folder.upload(source, "file", lambda size: None)
        assert folder.sizes() == {"file": 17 << 20}
    else:
        with pytest.raises(NotFound):
            folder.upload(source, "file", lambda size: None)


def test_an_upload_that_hangs_is_given_up(store: Path, s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_folder, "STALL_SECONDS", 0.5)
    s3.proxy.hold_after(500_000)
    with pytest.raises(Unavailable, match="nothing was sent for"):
        push(store, url)
    s3.proxy.heal()
    monkeypatch.setattr(remote_folder, "STALL_SECONDS", HANG)
    assert push(store, url).generation == 1


@pytest.mark.parametrize("command", ["push", "pull"])
def test_ctrl_c_leaves_the_old_state_and_says_how_to_go_on(
    store: Path, tmp_path: Path, s3: S3Server, url: str, command: str
) -> None:
    copy = tmp_path / "copy"
    if command == "pull":
        push(store, url)
    words = [*SUFFOLK, *(("push", str(store), url) if command == "push" else ("pull", url, str(copy)))]
    s3.proxy.hold_after(500_000)
    with default_interrupts():
        process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    s3.proxy.wait_until_held()
    process.send_signal(signal.SIGINT)
    s3.proxy.heal()
    _, errors = process.communicate(timeout=HANG)
    place = url if command == "push" else copy
    assert process.returncode == 130
    message = (
        f"suffolk: interrupted before the end; readers of {place} see no unfinished generation; run the command again"
    )
    assert message in errors
    assert RemoteFolder(url).sizes("generations").keys() == ({"000001.json"} if command == "pull" else set())
    assert not (copy / "MANIFEST").exists()
    subprocess.run(words, cwd=ROOT, check=True, timeout=HANG)
    pull(url, copy)
    require_equal(store, copy)
