"""Builds whose segments are sent when they are made, here by this process (tests/build_index/on_ray has a cluster)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.encode_block import EncodeSetup
from suffolk.build_index.gather import BuildState, Gatherer
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.pool import segments_here
from suffolk.build_index.report import BuildReport
from suffolk.datastore.errors import Corruption, InvalidArgument, Unavailable
from suffolk.datastore.manifest import SEGMENTS_NAME, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage.build import RemoteWorkspace
from suffolk.serving.store.storage.generations import generation_numbers
from suffolk.serving.store.storage.pull import pull
from tests.support.building import make_texts, segment_bytes, write_jsonl, write_tokenizer
from tests.support.copies import require_whole


@pytest.fixture
def options(tmp_path: Path) -> BuildOptions:
    """A build of three segments."""
    corpora = tuple(str(write_jsonl(tmp_path / f"{seed}.jsonl", make_texts(60, seed=seed))) for seed in range(3))
    return BuildOptions(corpora, tmp_path / "work", tokenizer=write_tokenizer(tmp_path), segment_tokens=1)


@pytest.fixture
def remote(tmp_path: Path) -> RemoteFolder:
    return RemoteFolder(f"file://{tmp_path}/remote")


def build_remotely(options: BuildOptions, remote: RemoteFolder, lost: str = "none") -> BuildReport:
    """Build, and send all segments but those with ``lost`` in their names."""
    workspace = RemoteWorkspace(options.output, remote)
    workspace.take_newest()

    def send(gatherer: Gatherer, state: BuildState, setup: EncodeSetup) -> int:
        with segments_here(1) as make:
            memory = make(gatherer, state, setup)
        for path in (workspace.folder / SEGMENTS_NAME).iterdir():
            if lost not in path.name:
                remote.upload(path, f"{SEGMENTS_NAME}/{path.name}", lambda size: None)
            path.unlink()
        return memory

    return build(options, open_maker=lambda workers: nullcontext(send), make_workspace=lambda store: workspace)


def test_a_segment_that_vanished_is_made_again_before_anything_is_published(
    tmp_path: Path, options: BuildOptions, remote: RemoteFolder
) -> None:
    with pytest.raises(Unavailable, match="another process removed 1 segment of this build; run the command again"):
        build_remotely(options, remote, lost="-00001-")
    assert generation_numbers(remote) == []
    assert build_remotely(options, remote).resumed_segments == 1
    build(replace(options, output=tmp_path / "here"))
    pull(remote.url, tmp_path / "copy")
    assert segment_bytes(tmp_path / "copy") == segment_bytes(tmp_path / "here")


def test_an_append_needs_no_old_segment_and_refuses_a_damaged_datastore(
    tmp_path: Path, options: BuildOptions, remote: RemoteFolder
) -> None:
    build_remotely(options, remote)
    more = replace(options, mode="append", corpora=(str(write_jsonl(tmp_path / "more.jsonl", make_texts(9, seed=9))),))
    build_remotely(more, remote)
    assert require_whole(remote.url) == 2
    pull(remote.url, tmp_path / "copy")
    with pytest.raises(InvalidArgument, match="holds a datastore, and the segments of this build go to file://"):
        build_remotely(replace(more, output=tmp_path / "copy"), remote)
    gone = read_manifest(tmp_path / "copy").segments[0].name
    remote.remove(f"{SEGMENTS_NAME}/{gone}")
    with pytest.raises(Corruption, match=f"{gone} is missing or not whole; push the datastore again"):
        build_remotely(more, remote)
    assert generation_numbers(remote) == [1, 2]


def test_a_build_that_was_published_before_a_crash_is_not_published_again(
    options: BuildOptions, remote: RemoteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_remotely(options, remote)
    more = replace(options, mode="append", corpora=options.corpora[:1])
    with monkeypatch.context() as patched:
        patched.setattr(RemoteWorkspace, "finish", lambda workspace, manifest: None)  # as after a crash
        build_remotely(more, remote)
    report = build_remotely(more, remote)
    assert (report.generation, report.resumed_segments) == (2, 1)
    assert generation_numbers(remote) == [1, 2]
