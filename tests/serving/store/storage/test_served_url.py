"""'suffolk serve URL' in a process: it copies, serves, follows, and says why it cannot."""

from __future__ import annotations

import signal
from pathlib import Path

import suffolk
from suffolk.datastore.manifest import SEGMENTS_NAME
from suffolk.serving.store.storage.push import push
from tests.serving.store.storage.test_generations import built
from tests.support.copies import require_equal
from tests.support.forked import running
from tests.support.s3_server import S3Server
from tests.support.waiting import HANG, until


def test_a_server_follows_storage(tmp_path: Path, s3: S3Server, url: str) -> None:
    store, copy = built(tmp_path, "store", 1), tmp_path / "cache/team@code"
    push(store, url)
    words = ("serve", f"team/code={url}", "--cache", str(tmp_path / "cache"), "--poll-seconds", "1")
    with running(*words, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0") as server:
        assert server.line.startswith("serving team/code on grpc")
        with suffolk.open(f"grpc://{server.endpoint()}/team/code", deadline=HANG) as client:
            require_equal(store, copy)
            built(tmp_path, "store", 2, "replace")
            push(store, url)
            until(lambda: client.info()["generation"] == 2)
            until(lambda: len(list((copy / SEGMENTS_NAME).iterdir())) == 1)
            require_equal(store, copy)
        code, errors = server.stop(signal.SIGTERM)
        assert code == 0
        assert f"suffolk: {url} has a new generation; copying it to {copy}\n" in errors
        assert "Found credentials" not in errors  # the client's library logs that
