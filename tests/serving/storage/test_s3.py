"""Push and pull with a real S3 server, over connections that break."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from suffolk.datastore.errors import Corruption, NotFound, PermissionDenied, Unavailable
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.storage import fetch
from suffolk.serving.storage.generations import missing_segments
from suffolk.serving.storage.pull import pull
from suffolk.serving.storage.push import push
from tests.support.copies import require_equal, require_whole
from tests.support.interrupts import default_interrupts
from tests.support.processes import ENVIRONMENT, SUFFOLK
from tests.support.s3_server import S3Server
from tests.support.stores import append_documents, random_documents
from tests.support.waiting import HANG


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


def test_cut_connections_are_survived(
    store: Path, tmp_path: Path, s3: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PART_BYTES", 1 << 16)
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
    assert [entry.name for entry in missing] == [read_manifest(store).segments[-1].name]
    report = push(store, url)
    assert (report.generation, report.sent_bytes) == (2, missing[0].bytes)
    pull(url, tmp_path / "copy")
    require_equal(store, tmp_path / "copy")
