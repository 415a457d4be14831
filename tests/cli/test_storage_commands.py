"""The commands push, pull and generations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import suffolk
from suffolk.cli.main import main
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.store.live_store.snapshot import snapshot
from tests.support.stores import append_documents, make_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_store(tmp_path / "store", [[[1, 2, 3], [1, 2, 4]]], vocab_size=9).close()
    return tmp_path / "store"


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_what_they_print(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, copy = f"file://{tmp_path}/remote", tmp_path / "copy"
    code, text, _ = run(capsys, "push", store, url)
    assert code == 0
    assert text.startswith(
        f"pushed {store} to {url} (generation 1)\n  holds      1 segment, 0.0 MB\n  sent       1 segment,"
    )
    assert run(capsys, "push", store, url)[1] == f"{url}: nothing to do: generation 1 is this datastore\n"
    code, text, _ = run(capsys, "pull", url, copy)
    assert code == 0
    assert text.startswith(
        f"pulled {url} to {copy} (generation 1)\n  holds      1 segment, 0.0 MB\n  fetched    1 segment,"
    )
    assert run(capsys, "pull", url, copy)[1] == f"{copy}: nothing to do: it is generation 1 of {url}\n"

    append_documents(store, [[5, 6]])
    report = json.loads(run(capsys, "push", store, url, "--json")[1])
    assert (report["generation"], report["published"], report["sent_files"]) == (2, True, 1)
    report = json.loads(run(capsys, "pull", url, copy, "--json")[1])
    assert (report["generation"], report["changed"], report["fetched_files"], report["readers"]) == (2, True, 1, [])
    assert run(capsys, "generations", url)[1].splitlines() == [
        "     1  2026-01-01T00:00:00Z  6 tokens of 2 documents, 1 segment, 0.0 MB",
        f"     2  {suffolk.open(copy).info()['created']}  8 tokens of 3 documents, 2 segments, 0.0 MB",
    ]
    facts = json.loads(run(capsys, "generations", url, "--rollback", "1", "--json")[1])
    assert [(each["generation"], each["tokens"]) for each in facts] == [(1, 6), (2, 8), (3, 6)]
    assert run(capsys, "pull", url, copy, "--generation", "2")[0] == 0


def test_a_build_at_a_url_prints_the_url_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "tokens.npy", np.arange(1, 8, dtype=np.uint16))
    words = ("build", "--vocab-size", "9", "--output", f"file://{tmp_path}/remote", tmp_path / "tokens.npy")
    assert run(capsys, *words)[0] == 0
    text = run(capsys, *words, "--append")[1]
    assert text.startswith(f"built file://{tmp_path}/remote (generation 2)\n")
    assert "\n  sent       " in text
    assert "suffolk-build" not in text
    assert run(capsys, *words, "--replace")[1].startswith(f"built file://{tmp_path}/remote (generation 3)\n")
    report = json.loads(run(capsys, *words, "--append", "--json")[1])
    assert (report["store"], report["push"]["store"]) == (f"file://{tmp_path}/remote", "")


def test_a_repaired_segment(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"file://{tmp_path}/remote"
    run(capsys, "push", store, url)
    shutil.rmtree(tmp_path / "remote/segments")
    assert run(capsys, "push", store, url)[1].startswith(f"repaired {store} to {url} (generation 1)")


def test_mistakes(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (("push", tmp_path / "none", "file:///tmp/x"), "none is no datastore: there is no such folder"),
        (("push", store, "file:///tmp/x", "--keep", "0"), "--keep"),
        (("pull", f"file://{tmp_path}/none", tmp_path / "copy"), "holds no datastore: it has no generations/"),
        (("generations", f"file://{tmp_path}/none"), "holds no datastore: it has no generations/"),
        (("info", "s3://bucket/code"), "a datastore in storage is searched in a copy"),
        (("serve", "s3://bucket/code"), "name a folder for it with --cache"),
        (("build", "--output", store, "--keep", "2", "a.txt"), "--keep has no effect"),
        (("build", "--output", "s3://b/c", "--append", "--plan", "a.txt"), "is not on disk; pull it"),
        (
            ("build", "--output", "grpc://h:1/c", "a.txt"),
            "output is 'grpc://h:1/c', a URL; name a place on this machine",
        ),
        (("snapshot", store, "s3://b/c"), "OUT is 's3://b/c', a URL; name a place on this machine"),
        (("split", store, "s3://b/c", "--shards", "2"), "OUT is 's3://b/c', a URL"),
    ):
        code, text, errors = run(capsys, *words)
        assert (code, text) == (2, "")
        assert message in errors
    with pytest.raises(InvalidArgument, match="path is 'grpc://h:1/c', a URL"):
        suffolk.create("grpc://h:1/c", vocab_size=9)
    with pytest.raises(InvalidArgument, match="output is 's3://b/c', a URL"):
        snapshot(store, "s3://b/c")


def test_a_push_of_a_live_datastore_says_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with suffolk.create(tmp_path / "live", vocab_size=9) as live:
        live.append([1, 2, 3])
        live.flush()
        code, _, errors = run(capsys, "push", tmp_path / "live", f"file://{tmp_path}/remote")
    assert code == 0
    assert "is live: only published documents were pushed" in errors
