"""Finished texts are appended in the background, without delaying or failing their caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.errors import NotFound, PermissionDenied, ResourceExhausted, Unsupported
from suffolk.serving.clients import text_appender
from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.open_store import open_appendable
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import LiveStore, create_live_store
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import VOCABULARY, serving
from tests.support.forked import suffolk
from tests.support.tiny_models import save_tiny
from tests.support.waiting import HANG, until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LiveStore]:
    settings = LiveSettings(max_group_tokens=8)
    with create_live_store(tmp_path / "chat", vocab_size=VOCABULARY, settings=settings) as store:
        yield store


def text(*tokens: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(tokens, np.int32)


def test_texts_are_appended_with_their_groups(store: LiveStore) -> None:
    with TextAppender(store) as appender:
        tokens = text(1, 2, 3)
        assert appender.add(tokens, "g")
        tokens[:] = 9  # the caller may reuse its array
        assert appender.add(text(4, 5))
        assert appender.add(text())  # nothing to append
        assert not appender.add(text(1, VOCABULARY))  # an id that only the model has
        until(lambda: appender.stats()["appended"] == 2)
    assert appender.stats() == {"appended": 2, "dropped": 1, "failed": 0, "waiting": 0}
    assert store.draft([1], group="g", scope="group").tokens.tolist() == [2, 3]
    assert store.lookup([4, 5]).count == 1
    assert not appender.add(text(1))  # closed


def test_no_error_ends_the_thread(store: LiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no memory")

    with TextAppender(store) as appender:
        with monkeypatch.context() as patched:
            patched.setattr(store, "append_batch", fail)
            appender.add(text(1, 2))
            until(lambda: appender.stats()["failed"] == 1)
        appender.add(text(1, 2))
        until(lambda: appender.stats()["appended"] == 1)


def test_a_full_queue_drops_and_never_waits(store: LiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, entered, append = threading.Event(), threading.Event(), store.append_batch

    def slow(*arguments: object) -> object:
        entered.set()
        gate.wait(HANG)
        return append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "append_batch", slow)
    monkeypatch.setattr(text_appender, "MAX_TEXTS", 3)
    with TextAppender(store) as appender:
        appender.add(text(1))
        assert entered.wait(HANG)
        assert [appender.add(text(2)) for _ in range(5)] == [True] * 3 + [False] * 2
        assert appender.stats() == {"appended": 0, "dropped": 2, "failed": 0, "waiting": 3}
        monkeypatch.setattr(text_appender, "MAX_TEXTS", 1000)
        monkeypatch.setattr(text_appender, "MAX_TOKENS", 5)
        assert [appender.add(text(1, 2)) for _ in range(2)] == [True, False]
        gate.set()
    assert appender.stats() == {"appended": 5, "dropped": 3, "failed": 0, "waiting": 0}


def test_failed_appends_are_counted_and_logged_once(
    store: LiveStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: object) -> None:
        raise ResourceExhausted("the disk is full")

    monkeypatch.setattr(store, "append_batch", full)
    with TextAppender(store) as appender:
        for number in range(3):
            appender.add(text(1))
            until(lambda number=number: appender.stats()["failed"] == number + 1)  # type: ignore[misc]
        monkeypatch.undo()
        appender.add(text(1, 2))  # there is space again
    assert appender.stats() == {"appended": 1, "dropped": 0, "failed": 3, "waiting": 0}
    assert [record.message for record in caplog.records] == ["texts are not remembered: the disk is full"]


def test_one_text_that_is_refused_takes_no_other_with_it(store: LiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with TextAppender(store) as appender:
        with appender._changed:  # the thread takes all of them at once
            appender._waiting += [(text(1, 2), "g"), (text(*[3] * 9), "g"), (text(4, 5), "g")]
            appender._changed.notify()
        until(lambda: sum(appender.stats().values()) == 3 and not appender.stats()["waiting"])
    assert appender.stats() == {"appended": 2, "dropped": 0, "failed": 1, "waiting": 0}


def test_opening(tmp_path: Path, store: LiveStore) -> None:
    with pytest.raises(NotFound, match="there is no datastore; make a live one there first"):
        open_appendable(str(tmp_path / "none"))
    with serving({"chat": store, "ids": BruteForceRetriever([[1]], VOCABULARY)}) as server:
        url = f"grpc://{server.listening[0]}"
        with open_appendable(f"{url}/chat", deadline=HANG) as remote, TextAppender(remote) as appender:
            appender.add(text(1, 2))
        assert appender.stats()["appended"] == 1
        assert store.lookup([1, 2]).count == 1
        with pytest.raises(Unsupported, match="datastore ids takes no documents"):
            open_appendable(f"{url}/ids")


def test_a_caller_that_may_only_read_is_refused_at_once(tmp_path: Path, store: LiveStore) -> None:
    """Regression: it was refused at the first finished text, which was lost."""
    access = tmp_path / "access.toml"
    for name, role in (("reader", Role.READ), ("writer", Role.APPEND)):
        (tmp_path / name).write_text(add_token(access, name, {"default": role}))
    with serving({"chat": store}, access=access) as server:
        url = f"grpc://{server.listening[0]}/chat?token_file={tmp_path}"
        with pytest.raises(
            PermissionDenied, match=r"remember grpc://.*: the caller has the role read there, and appends"
        ):
            open_appendable(f"{url}/reader")
        open_appendable(f"{url}/writer").close()
        words = ("--model", str(save_tiny(tmp_path / "tiny")), "--remember", f"{url}/reader", "--listen", "127.0.0.1:0")
        ended = suffolk("worker", *words)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert "the caller has the role read there" in ended.stderr
