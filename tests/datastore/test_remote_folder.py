"""Folders at URLs. The tests of serving/store/storage use them with a real S3 server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from suffolk.datastore.errors import NotFound, Unavailable
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.remote_folder import RemoteFolder


@pytest.fixture(params=["memory", "file"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteFolder:
    return RemoteFolder(f"memory://{tmp_path.name}" if request.param == "memory" else f"file://{tmp_path}/remote/")


def test_files_come_back(remote: RemoteFolder, tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000
    (tmp_path / "source").write_bytes(content)
    reported: list[int] = []
    remote.upload(tmp_path / "source", "folder/large", reported.append)
    assert sum(reported) == len(content)
    assert remote.read("folder/large") == content
    assert remote.end_read("folder/large", 4000, remote.begin_read("folder/large", 1000, 5000)) == content[1000:5000]
    assert (remote.sizes("folder"), remote.sizes(), remote.sizes("none")) == (
        {"large": len(content)},
        {"folder": -1},
        {},
    )
    assert 0 <= remote.age("folder/large") < 3600
    beyond = remote.begin_read("folder/large", len(content) - 10, len(content) + 4086)
    with pytest.raises(Unavailable, match="10 of 4096 bytes arrived; run the command again"):
        remote.end_read("folder/large", 4096, beyond)
    remote.remove("folder/large")
    remote.remove("folder/large")
    with pytest.raises(NotFound, match=f"{remote.url}/folder/large: not found"):
        remote.read("folder/large")


def test_a_file_is_created_once(remote: RemoteFolder) -> None:
    assert remote.create("generations/1", b"one")
    assert not remote.create("generations/1", b"two")
    assert remote.read("generations/1") == b"one"
    assert remote.sizes("generations") == {"1": 3}


def test_an_upload_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    remote = RemoteFolder(f"file://{tmp_path}/remote")
    (tmp_path / "source").write_bytes(b"content")

    def stop(size: int) -> None:
        raise Unavailable("stopped")

    with pytest.raises(Unavailable, match="stopped"):
        remote.upload(tmp_path / "source", "name", stop)
    assert remote.sizes() == {}


def test_urls_of_storage() -> None:
    for url in ("s3://bucket", "gs://bucket/a", "file:///a", "hf://datasets/a/b"):
        assert is_storage_url(url)
    for text in ("store/", "/a/b", "grpc://host:1/a", "grpcs://host/a", "grpc+unix:///a#b", "C:/a"):
        assert not is_storage_url(text)


def test_fsspec_is_imported_only_for_urls() -> None:
    program = (
        "import sys, suffolk\n"
        "import suffolk.cli.serve, suffolk.cli.build, suffolk.cli.storage\n"
        "suffolk.open, suffolk.build\n"
        "assert not {'fsspec', 's3fs', 'botocore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
