"""The text of removed documents leaves the log in time, whatever removed it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from suffolk.build_index.delete import delete
from suffolk.datastore.documents import Document
from suffolk.serving.store.live_store import times
from suffolk.serving.store.live_store.identity import log_folder
from suffolk.serving.store.live_store.store import LiveStore
from tests.serving.store.live_store.conftest import OpenStore
from tests.support.waiting import until

SECRET = np.array([41, 42, 43, 44, 45, 46, 47], np.uint16)


def holds(store: LiveStore) -> bool:
    """Whether the log holds the secret document: its tokens or its name."""
    try:
        content = b"".join(path.read_bytes() for path in log_folder(store.path).iterdir())
    except FileNotFoundError:  # a checkpoint replaced it since it was listed
        return holds(store)
    assert (SECRET.tobytes() in content) == (b"secret" in content)
    return b"secret" in content


def append_secret(store: LiveStore, group: str | None = None) -> None:
    store.append_batch([Document("secret", {}, SECRET), Document("other", {}, np.array([1]))], [group, None])
    assert holds(store)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "DELETED_SECONDS", 0.05)


@pytest.mark.parametrize(
    ("group", "change"),
    [
        (None, lambda store: store.delete(ids=["secret"])),
        (None, lambda store: store.delete(where=["source=secret"])),
        ("g", lambda store: store.delete(group="g")),
        ("g", lambda store: store.delete(ids=["secret"])),
    ],
)
@pytest.mark.usefixtures("soon")
def test_deleted_text_leaves_the_log(
    open_store: OpenStore, group: str | None, change: Callable[[LiveStore], None]
) -> None:
    store = open_store()
    append_secret(store, group)
    change(store)
    until(lambda: not holds(store))
    assert [each.source for each in store.documents()] == ["other"]
    assert [each.source for each in open_store().documents()] == ["other"]


@pytest.mark.usefixtures("soon")
def test_text_that_was_published_before_it_was_deleted_leaves_the_log(open_store: OpenStore) -> None:
    store = open_store()
    store.append([1], id="base")
    store.flush()
    for how in (store.delete, lambda ids: delete(store.path, ids)):
        append_secret(store)
        store.append([2], group="g")  # keeps the file
        store.flush()
        assert holds(store)
        how(ids=["secret"])
        until(lambda: not holds(store))


def test_replaced_and_evicted_text_leaves_the_log_later(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    time = [0.0]
    store = open_store(max_tokens=100, max_group_tokens=50)
    store.maintenance_thread.close()
    monkeypatch.setattr(store.writer.removed_text, "_steady", lambda: time[0])
    for change in (
        lambda: store.append([2], group="g", replace=True),
        lambda: [store.append([3] * 10, group="g") for _ in range(6)],
        lambda: [store.append([4] * 50) for _ in range(3)],
    ):
        append_secret(store, "g")
        change()
        for seconds in (1.0, times.REPLACED_SECONDS - 2.0):
            time[0] += seconds
            store.maintenance.work()
            assert holds(store)
        time[0] += 2.0
        store.maintenance.work()
        assert not holds(store)
        files = sorted(log_folder(store.path).iterdir())
        time[0] += 2 * times.REPLACED_SECONDS
        store.maintenance.work()
        assert sorted(log_folder(store.path).iterdir()) == files  # nothing was removed since


@pytest.mark.usefixtures("soon")
def test_text_that_was_deleted_before_a_crash_leaves_the_log(open_store: OpenStore) -> None:
    store = open_store()
    store.maintenance_thread.close()
    append_secret(store, "g")
    store.delete(group="g")
    assert holds(store)
    store = open_store()
    until(lambda: not holds(store))
    store.append([7])
    store = open_store()
    files = sorted(log_folder(store.path).iterdir())
    store.append([8])
    store.maintenance.work()
    assert sorted(log_folder(store.path).iterdir())[:-1] == files  # there is nothing to remove


def test_a_failed_rewrite_is_repeated(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    store.maintenance_thread.close()
    append_secret(store)
    store.delete(ids=["secret"])

    def fails(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(store.writer.log, "checkpoint", fails)
        with pytest.raises(MemoryError):
            store.scrub()
    assert holds(store)
    store.maintenance.work()
    assert not holds(store)


def test_a_rewrite_of_everything_makes_the_log_no_larger(open_store: OpenStore) -> None:
    """Regression: a rewrite took four bytes for a token of a small vocabulary."""
    store = open_store()
    store.append([1] * 1000)
    size = store.stats().log_bytes
    store.scrub()
    store.append([1] * 1000)
    assert store.stats().log_bytes < 2 * size + 100


def test_numbers_rise_after_a_rewrite_of_nothing(open_store: OpenStore, tmp_path: Path) -> None:
    """Regression: a log that held no document any more began again with document 1."""
    store = open_store()
    for _ in range(5):
        store.append([1, 2], group="g")
    store.delete(group="g")
    store.scrub()
    store = open_store()
    assert store.append([3]).sequence == 7
