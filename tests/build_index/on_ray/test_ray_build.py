"""Builds on a Ray cluster of three nodes. The bytes are those of a local build, whatever happens to the nodes."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import s3fs

from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.pool import on_ray
from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.workspace import Workspace
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import InvalidArgument, Unavailable, Unsupported
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, read_manifest
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.serving.store.storage.build import build_at
from suffolk.serving.store.storage.generations import generation_numbers
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import push
from tests.support.building import (
    ROOT,
    command,
    make_texts,
    read_documents,
    segment_bytes,
    write_jsonl,
    write_tokenizer,
)
from tests.support.forked import suffolk
from tests.support.interrupts import default_interrupts
from tests.support.ray_cluster import NODE, ray_cluster
from tests.support.s3_server import S3Server, s3_server
from tests.support.waiting import until

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """A server that this process and the nodes find."""
    s3fs.S3FileSystem.clear_instance_cache()
    with s3_server() as server, patch.dict("os.environ", server.environment):
        yield server
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def cluster(s3: S3Server) -> Iterator[Any]:
    with ray_cluster(3) as running:
        yield running


def options(folder: Path, files: int) -> BuildOptions:
    """A build of one segment for each of ``files`` files: a segment takes whole blocks."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(files):
        write_jsonl(corpus / f"{number:02}.jsonl", make_texts(60, seed=number))
    return BuildOptions(
        (str(corpus),), folder / "store", tokenizer=write_tokenizer(folder), segment_tokens=1, id_field="id"
    )


class Notes(WorkProgress):
    """Keeps the notes of a build, and calls ``react`` with each."""

    def __init__(self, react: Callable[[str], None] = lambda note: None) -> None:
        self.notes: list[str] = []
        self._react = react

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._react(text)

    def sorted(self) -> int:
        """Number of segments that were sorted."""
        return sum(note.startswith("sorting segment") for note in self.notes)


def test_an_interrupted_build_goes_on_and_sorts_no_finished_segment_again(tmp_path: Path, cluster: Any) -> None:
    made = options(tmp_path, 30)
    words = command("build", "--tokenizer", str(made.tokenizer), "--output", made.output, "--ray", cluster.address)
    with default_interrupts():
        process = subprocess.Popen(
            [*words, "--segment-tokens", "1", "--id-field", "id", *made.corpora],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
    journal = made.output / "build" / "journal.jsonl"
    until(lambda: journal.exists() and len(journal.read_text().splitlines()) > 3)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "suffolk: interrupted"
    assert not (made.output / "MANIFEST").exists()
    finished = len(journal.read_text().splitlines()) - 1
    assert 2 < finished < 30
    progress = Notes()
    report = build(made, progress, on_ray(cluster.address))
    assert report.resumed_segments == finished
    assert progress.sorted() == 30 - finished
    build(replace(made, output=tmp_path / "here"))
    assert segment_bytes(made.output) == segment_bytes(tmp_path / "here")


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path, cluster: Any) -> None:
    made = options(tmp_path, 1)
    (tmp_path / "bad.jsonl").write_text('{"text": "good"}\n{"body": "x"}\n')
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    for address, corpus, message in (
        (cluster.address, tmp_path / "bad.jsonl", "bad.jsonl:2: no field 'text'; the record has body"),
        (f"127.0.0.1:{free}", made.corpora[0], f"--ray: 127.0.0.1:{free}: no answer"),
        ("ray://10.0.0.1:10001", made.corpora[0], "not an address; give HOST:PORT, auto or local"),
    ):
        out = tmp_path / "new" / "store"
        done = suffolk("build", "--tokenizer", str(made.tokenizer), "--output", out, "--ray", address, corpus)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.splitlines()[-1].startswith("suffolk: ")
        assert message in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
        assert not out.parent.exists()
    build(made)
    with pytest.raises(InvalidArgument, match="holds a datastore already"):
        build(made, open_maker=on_ray("127.0.0.1:1"))


def test_a_node_without_suffolk_is_named(tmp_path: Path, cluster: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules['suffolk'] = None"
    )  # no process there can import it
    node = cluster.add_node(**NODE, env_vars={"PYTHONPATH": str(tmp_path)})
    try:
        with pytest.raises(Unsupported, match=r"node .*: it cannot take part .* needs suffolk .* with the extra ray"):
            build(options(tmp_path, 1), open_maker=on_ray(cluster.address))
    finally:
        cluster.remove_node(node)
    assert not (tmp_path / "store").exists()


def test_a_killed_node_changes_nothing(tmp_path: Path, cluster: Any) -> None:
    """One of the last tests here, because it takes a node away.

    Local files are read on this machine, and those at a URL anywhere; small texts share blocks; skipped files are counted.
    """

    def kill(note: str) -> None:
        if "00005.segment" in note and len(cluster.worker_nodes) == 2:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    tree = tmp_path / "tree"
    tree.mkdir()
    for number, text in enumerate(make_texts(40)):
        (tree / f"{number}.txt").write_text(text)
    (tree / "empty.txt").write_text("")
    made = options(tmp_path, 9)
    made = replace(made, corpora=(*made.corpora, str(tree), f"file://{tmp_path}/corpus/*.jsonl"), segment_tokens=9000)
    progress = Notes(kill)
    there = build(made, progress, on_ray(cluster.address))
    assert len(cluster.worker_nodes) == 1
    assert progress.sorted() >= there.segments > 6
    here = build(replace(made, output=tmp_path / "here"))
    assert segment_bytes(made.output) == segment_bytes(tmp_path / "here")
    kept = ("segments", "documents", "tokens", "text_bytes", "run_tokens", "skipped", "checked")
    assert [getattr(there, name) for name in kept] == [getattr(here, name) for name in kept]
    with open_datastore(made.output) as store:
        store.verify("full")


def without_times(manifest: Manifest) -> Manifest:
    builds = [facts | {"built": ""} for facts in manifest.settings["builds"]]
    return replace(manifest, created="", settings={"builds": builds})


def test_segments_go_straight_to_a_url(tmp_path: Path, cluster: Any, s3: S3Server) -> None:
    """The last test here, because it takes another node away."""

    def interrupt(note: str) -> None:
        if "00008.segment" in note:
            raise KeyboardInterrupt

    def kill(note: str) -> None:
        if "00009.segment" in note and len(cluster.worker_nodes) > left:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    left = len(cluster.worker_nodes) - 1
    made, url = options(tmp_path, 12), f"{s3.make_bucket()}/code"
    work, here, copy = tmp_path / "work", tmp_path / "here", tmp_path / "copy"
    remote = RemoteFolder(url)
    with pytest.raises(KeyboardInterrupt):
        build_at(url, made, work, 3, Notes(interrupt), cluster.address)
    names = [entry["entry"]["name"] for entry in Workspace(work).journal_lines()[1:]]
    assert len(names) > 2
    assert generation_numbers(remote) == []
    assert remote.sizes(SEGMENTS_NAME).keys() >= set(names)
    assert not list(work.rglob("*.segment"))

    remote.remove(f"{SEGMENTS_NAME}/{names[1]}")
    sent = list(remote.sizes(SEGMENTS_NAME))
    files, folder = s3fs.S3FileSystem(), f"{url.removeprefix('s3://')}/{SEGMENTS_NAME}"
    before = {name: files.modified(f"{folder}/{name}") for name in sent}
    report, pushed = build_at(url, made, work, 3, Notes(kill), cluster.address)
    assert len(cluster.worker_nodes) == left
    assert (report.resumed_segments, pushed.sent_files, pushed.generation) == (1, 12, 1)
    assert {name: files.modified(f"{folder}/{name}") for name in sent} == before  # none was sent again
    assert not list(work.rglob("*.segment"))
    build(replace(made, output=here))
    pull(url, copy)
    assert segment_bytes(copy) == segment_bytes(here)
    assert without_times(read_manifest(copy)) == without_times(read_manifest(here))
    with open_datastore(copy) as store:
        store.verify("full")

    other, more = (
        replace(made, mode="append", corpora=(str(write_jsonl(tmp_path / f"{seed}.jsonl", make_texts(9, seed=seed))),))
        for seed in (98, 99)
    )
    build(replace(other, output=here))
    with pytest.raises(Unavailable, match="published generation 2 since this build began; run the command again"):
        build_at(url, more, tmp_path / "new" / "work", 3, Notes(lambda note: push(here, url) and None), cluster.address)
    report, pushed = build_at(url, more, tmp_path / "new" / "work", 3, WorkProgress(), cluster.address)
    assert (report.resumed_segments, report.segments, pushed.generation, pushed.segments) == (1, 1, 3, 14)
    build(replace(more, output=here))
    pull(url, copy)
    assert read_documents(copy) == read_documents(here)
