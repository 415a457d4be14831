"""Push, pull and rollback that are killed at every point leave the old or the new generation, and can be repeated."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.errors import NotFound
from suffolk.datastore.manifest import read_manifest
from suffolk.serving.store.storage.pull import pull
from suffolk.serving.store.storage.push import push
from tests.support.building import make_texts, write_jsonl, write_tokenizer
from tests.support.copies import require_equal, require_whole
from tests.support.fork_server import ForkServer


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("suffolk.cli.storage", "fsspec.implementations.local") as running:
        yield running


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two generations of a datastore, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("stores")
    paths = []
    for mode, seed in (("new", 1), ("append", 2), ("replace", 3)):
        corpus = str(write_jsonl(folder / f"{seed}.jsonl", make_texts(6, seed=seed)))
        build(
            BuildOptions(
                (corpus,), folder / "work", tokenizer=write_tokenizer(folder), mode=mode, segment_tokens=100, threads=1
            )
        )
        paths.append(shutil.copytree(folder / "work", folder / mode))
    return paths


@pytest.mark.parametrize("newer", [1, 2], ids=["append", "replace"])
def test_a_killed_push(server: ForkServer, stores: list[Path], tmp_path: Path, newer: int) -> None:
    base, url = tmp_path / "base", f"file://{tmp_path}/remote"
    push(stores[0], f"file://{base}")
    words = ["push", str(stores[newer]), url, "--keep", "1"]
    remote = shutil.copytree(base, tmp_path / "remote")
    points = server.run(words, failpoint="none").reached
    assert {"push.segment", "push.sent", "push.published", "prune.generation"} <= set(points)
    assert ("prune.segment" in points) == (newer == 2)
    for point, times in points.items():
        for time in range(1, times + 1):
            shutil.rmtree(remote)
            shutil.copytree(base, remote)
            assert server.run(words, failpoint=f"{point}@{time}").code == -9
            generation = require_whole(url)
            pull(url, tmp_path / f"{point}-{time}")
            require_equal(stores[newer if generation == 2 else 0], tmp_path / f"{point}-{time}")
            assert server.run(words).code == 0
            assert require_whole(url) == 2
            names = {entry.name for entry in read_manifest(stores[newer]).files()}
            left = {path.name for path in (remote / "segments").iterdir()} - names
            assert not left or point == "prune.generation"  # they are removed when they are old


@pytest.mark.parametrize("older", [None, 0], ids=["first", "update"])
def test_a_killed_pull(server: ForkServer, stores: list[Path], tmp_path: Path, older: int | None) -> None:
    url, copy = f"file://{tmp_path}/remote", tmp_path / "copy"
    if older is not None:
        push(stores[older], url)
        pull(url, tmp_path / "base")
    push(stores[2], url)
    words = ["pull", url, str(copy)]

    def prepare() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        if older is not None:
            shutil.copytree(tmp_path / "base", copy)

    prepare()
    points = server.run(words, failpoint="none").reached
    assert {"pull.part", "pull.segment", "pull.fetched", "MANIFEST.renamed"} <= set(points)
    for point, times in points.items():
        for time in range(1, times + 1):
            prepare()
            assert server.run(words, failpoint=f"{point}@{time}").code == -9
            try:
                newest = read_manifest(copy).generation == (1 if older is None else 2)
                require_readable(stores[2 if newest else 0], copy)
            except NotFound:
                assert older is None
            again = server.run(words)
            assert again.code == 0, again.errors
            require_equal(stores[2], copy)


def require_readable(store: Path, copy: Path) -> None:
    """As ``require_equal``, but for files that the killed command left."""
    for entry in read_manifest(copy).files():
        assert (copy / "segments" / entry.name).read_bytes() == (store / "segments" / entry.name).read_bytes()
