"""Background work fails, and runs beside other calls, without losing or repeating a document."""

from __future__ import annotations

import threading

import pytest

from suffolk.build_index.delete import delete
from suffolk.datastore.errors import Unavailable
from suffolk.datastore.manifest import writer_lock
from suffolk.serving.store.live_store import published_files
from suffolk.serving.store.live_store.maintenance import KEEP_SECONDS
from suffolk.serving.store.live_store.store import LiveStore
from tests.serving.store.live_store.conftest import OpenStore
from tests.serving.store.live_store.test_live_bounds import first_tokens, without_keeper
from tests.support.waiting import HANG, until


def test_appends_beside_a_trim_stay_in_the_log(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = without_keeper(open_store())
    writer, stats = store.writer, store.writer.index.stats()
    assert stats["oldest_sequence"] == 0
    monkeypatch.setattr(writer.log, "file_bytes", 100)

    class Interrupted:
        """The index; other threads append between its answer and the next step."""

        def stats(self) -> dict[str, int]:
            writer.index = index
            for number in range(4):
                store.append([number] * 50, group="g")
            return stats

    index, writer.index = writer.index, Interrupted()  # type: ignore[assignment]
    writer.trim()
    assert first_tokens(store) == first_tokens(open_store()) == [0, 1, 2, 3]


def fails(*_: object) -> None:
    raise Unavailable("too many open files")


def test_a_generation_that_cannot_be_taken_up_is_not_published_again(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = without_keeper(open_store())
    store.append([1, 2, 3], id="a")
    with monkeypatch.context() as patched:
        patched.setattr(published_files, "open_datastore", fails)
        for _ in range(2):
            with pytest.raises(Unavailable):
                store.flush()
    assert store.writer.unpublished_tokens == 0
    store.append([4], group="g")
    assert store.flush() is None
    assert store.lookup([1, 2]) == (2, 1)
    assert first_tokens(store) == first_tokens(open_store()) == [1, 4]


def test_memory_is_bounded_while_nothing_can_be_published(open_store: OpenStore) -> None:
    store = without_keeper(open_store(ttl_seconds=60, max_tokens=100))
    store.append([1] * 20)
    store.flush()
    store.writer.clock._offset += 80  # the published segment is due
    with writer_lock(store.path):
        for number in range(30):
            store.append([number] * 10)
            with pytest.raises(Unavailable):
                store.maintenance.work()
            assert store.stats().tokens <= 100
        store.append([30] * 100)
        store.maintenance.relieve()
        assert store.stats().tokens <= 100
    store.maintenance.work()
    assert store.stats().tokens + store.stats().published_tokens <= 100


def test_a_checkpoint_is_made_while_nothing_can_be_published(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = without_keeper(open_store(flush_tokens=5))
    store.append([1] * 10)
    called: list[bool] = []
    monkeypatch.setattr(store.writer, "checkpoint", lambda: called.append(True))
    with writer_lock(store.path), pytest.raises(Unavailable):
        store.maintenance.work()
    assert called


def test_a_deletion_by_another_process_is_served_during_a_checkpoint(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = without_keeper(open_store())
    store.append([5, 6, 7], id="x")
    store.append([8, 9], id="y")
    store.flush()
    store.append([1], group="g")
    entered, release = threading.Event(), threading.Event()
    checkpoint = store.writer.log.checkpoint

    def slow(*arguments: object) -> None:
        entered.set()
        assert release.wait(HANG)
        checkpoint(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store.writer.log, "checkpoint", slow)
    forced = store.writer.checkpoint
    monkeypatch.setattr(store.writer, "checkpoint", lambda: forced(force=True))
    work = threading.Thread(target=store.maintenance.work)
    work.start()
    assert entered.wait(HANG)
    delete(store.path, ["x"], [])
    until(lambda: store.lookup([5, 6]) == (0, 0))
    store.writer.trim()
    release.set()
    work.join()
    assert first_tokens(store) == first_tokens(open_store()) == [8, 1]


def groups(store: LiveStore) -> list[str]:
    return [chr(97 + token) for token in first_tokens(store)]


def test_groups_in_use_stay_after_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(20):
        store.append([number] * 50, group=chr(97 + number))
    store = without_keeper(open_store(evict="use", max_tokens=1000))
    store.lookup([1], group="a")
    store.append([19], group="t")
    store.maintenance.work()
    assert groups(store) == ["a", *"defghijklmnopqrst", "t"]


def test_only_groups_with_documents_are_remembered(open_store: OpenStore) -> None:
    store = without_keeper(open_store(evict="use"))
    store.lookup_batch([[1]] * 50, group=[f"unknown {number}" for number in range(50)])
    for number in range(5):
        store.append([number], group=f"{number}")
    assert len(store._bounds._used) == 5
    for number in range(3):
        store.delete(group=f"{number}")
    store.maintenance.work()
    assert len(store._bounds._used) == 2


def test_any_error_is_kept_and_work_is_tried_again_later(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    maintenance, now = without_keeper(open_store()).maintenance, [0.0]
    worked, relieved = list[float](), list[float]()

    def work() -> None:
        worked.append(now[0])
        if len(worked) < 5:
            raise MemoryError

    monkeypatch.setattr("suffolk.serving.store.live_store.maintenance.time.monotonic", lambda: now[0])
    monkeypatch.setattr(maintenance, "work", work)
    monkeypatch.setattr(maintenance, "relieve", lambda: relieved.append(now[0]))
    while now[0] < 8.0:
        maintenance.round()
        assert maintenance.error == ("MemoryError" if len(worked) < 5 else None)
        now[0] += KEEP_SECONDS
    assert worked[:6] == [0.0, 0.5, 1.5, 3.5, 7.5, 8.0][: len(worked)]
    assert sorted(worked + relieved) == [KEEP_SECONDS * number for number in range(16)]
