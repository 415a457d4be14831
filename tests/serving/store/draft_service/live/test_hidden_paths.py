"""Callers see no path of the server."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from suffolk.datastore.errors import Internal, ResourceExhausted, Unavailable, damaged
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.store.draft_service.disclosure import HiddenPaths, public_info
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import LiveStore
from tests.support.brute_force import BruteForceRetriever
from tests.support.full_disk import file_size_limit
from tests.support.http_requests import ask


def test_a_refused_append_names_the_datastore(
    server: DraftServer, remote: RemoteDatastore, store: LiveStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remote.append([1, 2, 3])
    with caplog.at_level(logging.ERROR), file_size_limit(1 << 12):
        body = {"documents": [{"tokens": [1] * 4000}], "datastore": "chat"}
        for _ in range(3):
            with pytest.raises(ResourceExhausted) as caught:
                remote.append([1] * 4000)
            status, _, reply = ask(server, "POST", "/v1/append", body)
            for text in (str(caught.value), reply["error"]["message"]):
                assert "chat/live/log" in text
                assert "cannot be written (File too large)" in text
                assert str(tmp_path) not in text
            assert status == 429
            assert caught.value.retry_seconds is None
    assert caplog.text.count(str(tmp_path)) == 1
    assert remote.lookup([1, 2, 3]).length == 3


def test_a_failed_flush_names_no_path(server: DraftServer, remote: RemoteDatastore, tmp_path: Path) -> None:
    remote.append([1, 2, 3])
    with file_size_limit(16), pytest.raises(ResourceExhausted) as caught:
        remote.flush()
    assert str(tmp_path) not in str(caught.value)
    (tmp_path / "chat" / "LOCK").chmod(0o000)
    for text in (json.dumps(remote.info()), json.dumps(ask(server, "GET", "/v1/info")[2])):
        assert str(tmp_path) not in text


def test_paths_are_replaced_by_names() -> None:
    store = BruteForceRetriever([[1]], 9)
    store.path = Path("/s/w")  # type: ignore[attr-defined]
    with pytest.raises(Unavailable) as caught, HiddenPaths().in_errors({"wiki": store}):
        raise Unavailable("/s/w/live/log and /s/w")
    assert str(caught.value) == "wiki/live/log and wiki"
    with pytest.raises(Internal), HiddenPaths().in_errors({"wiki": store}):
        raise Internal("nothing")
    assert "restore it" in str(damaged("x", "is damaged"))


def test_info_has_names_of_corpora() -> None:
    info = {
        "path": "/a/b",
        "tokens": 3,
        "settings": {"builds": [{"corpora": ["/home/me/lib", "x/*.py"], "built": "now"}]},
    }
    assert public_info(info) == {"tokens": 3, "settings": {"builds": [{"corpora": ["lib", "*.py"], "built": "now"}]}}
    assert public_info({"path": "/a", "settings": {"builds": "odd"}}) == {"settings": {"builds": "odd"}}
