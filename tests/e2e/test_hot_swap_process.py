"""Servers follow changes by other processes, which report them."""

from __future__ import annotations

import json
import platform
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.manifest import tokenizer_name
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer
from suffolk.serving.clients.remote_datastore import RemoteDatastore, connect
from tests.support.forked import running, suffolk
from tests.support.stores import make_store
from tests.support.tiny_models import save_tiny
from tests.support.waiting import HANG


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_store(tmp_path / "wiki", [[[1, 2, 3], [1, 2, 4]]], vocab_size=40).close()
    return tmp_path / "wiki"


def write_tokens(path: Path, ids: list[int]) -> str:
    np.save(path, np.array(ids, np.uint16))
    return str(path)


def ask(remote: RemoteDatastore, stop: threading.Event, answers: list[int], failures: list[SuffolkError]) -> None:
    while not stop.is_set():
        try:
            answers.append(remote.lookup([1, 2]).count)
        except SuffolkError as error:
            failures.append(error)


def test_a_server_follows_build_delete_and_compact(path: Path, tmp_path: Path) -> None:
    corpus = write_tokens(tmp_path / "more.npy", [1, 2, 5])
    words = ("serve", str(path), "--listen", "127.0.0.1:0", "--http", "off")
    with running(*words) as server, connect(f"grpc://{server.endpoint()}", HANG) as remote:
        serves = f"process {server.process.pid} on {platform.node()} serves generation"
        answers: list[int] = []
        failures: list[SuffolkError] = []
        stop = threading.Event()
        asking = threading.Thread(target=ask, args=(remote, stop, answers, failures))
        asking.start()
        try:
            built = suffolk("build", "--output", str(path), "--append", corpus)
            assert f"{serves} 2" in built.stdout, built
            assert remote.lookup([1, 2]).count == 3
            deleted = suffolk("delete", str(path), "--id", "segment 0 document 0")
            assert f"{serves} 3" in deleted.stdout, deleted
            assert remote.lookup([1, 2, 3]) == (0, 0)  # in no answer once the command has returned
            assert remote.draft([1, 2]).tokens.tolist() == [4, 5]
            compacted = json.loads(suffolk("compact", str(path), "--json").stdout)
            assert [reader["generation"] for reader in compacted["readers"]] == [compacted["generation"]] == [4]
            assert remote.info()["generation"] == 4
        finally:
            stop.set()
            asking.join()
        assert not failures
        assert set(answers) == {2, 3}
        dry = suffolk("delete", str(path), "--where", "source~*", "--dry-run")
        assert "serves" not in dry.stdout
    # the server was killed, so its record is stale
    deleted = suffolk("delete", str(path), "--id", "segment 0 document 1", "--json")
    assert json.loads(deleted.stdout)["readers"] == []


def test_a_refused_generation_is_reported(path: Path, tmp_path: Path) -> None:
    corpus = write_tokens(tmp_path / "more.npy", [1, 2, 5])
    with running("serve", str(path), "--listen", "127.0.0.1:0", "--http", "off") as server:
        built = suffolk("build", "--output", str(path), "--replace", "--vocab-size", "50", corpus)
        assert (
            f"process {server.process.pid} on {platform.node()} still serves generation 1: {path}: generation 2 has "
            "vocab_size 50, and callers rely on 40; restart this process to serve it"
        ) in built.stdout
        with connect(f"grpc://{server.endpoint()}", HANG) as remote:
            assert remote.lookup([1, 2]).count == 2


def test_a_worker_follows(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "model")
    store, mark = tmp_path / "bytes", fingerprint(load_tokenizer(str(model)))
    make_store(store, [[list(range(66, 92)) * 9, [70, 71]]], vocab_size=257, tokenizer=mark).close()
    shutil.copy(model / "tokenizer.json", store / tokenizer_name(mark))
    listen = ("--listen", "127.0.0.1:0", "--http", "off")
    with running("worker", "--model", str(model), "--datastore", str(store), *listen) as worker:
        generate = ("generate", "--worker", f"grpc://{worker.endpoint()}", "--max-new-tokens", "20", "abcabc")
        before = suffolk(*generate)
        deleted = suffolk("delete", str(store), "--id", "segment 0 document 0")
        assert f"process {worker.process.pid} on {platform.node()} serves generation 2" in deleted.stdout
        after = suffolk(*generate)
        assert (after.returncode, after.stdout) == (0, before.stdout)
