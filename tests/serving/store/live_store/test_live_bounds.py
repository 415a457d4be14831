"""Bounds of a live store: what goes when it is full, old or on a full disk."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted
from suffolk.datastore.manifest import read_manifest, writer_lock
from suffolk.serving.store.live_store.publish import live_segments
from suffolk.serving.store.live_store.record import MAX_BODY_BYTES
from suffolk.serving.store.live_store.settings import MAX_BATCH_ORIGIN_BYTES, MAX_BATCH_TOKENS, LiveSettings
from suffolk.serving.store.live_store.store import LiveStore
from tests.serving.store.live_store.conftest import OpenStore
from tests.support.full_disk import file_size_limit
from tests.support.stores import make_store


def first_tokens(store: LiveStore) -> list[int]:
    return [int(each.tokens[0]) for each in store.documents()]


def without_keeper(store: LiveStore) -> LiveStore:
    """The store without its thread; tests call ``maintenance.work``."""
    store.maintenance_thread.close()
    return store


@pytest.mark.parametrize("reopen", [False, True])
def test_the_oldest_documents_go_first(open_store: OpenStore, reopen: bool) -> None:
    store = without_keeper(open_store(max_tokens=160))
    for number in range(30):
        store.append([number] * 10)
        store.maintenance.work()
        assert store.stats().tokens <= 160
    if reopen:
        expected = first_tokens(store)
        store = open_store()
        assert first_tokens(store) == expected
    assert first_tokens(store)[-1] == 29
    assert first_tokens(store) == list(range(30 - len(first_tokens(store)), 30))
    assert len(first_tokens(store)) >= 14


def test_a_bound_in_bytes_holds(open_store: OpenStore) -> None:
    store = without_keeper(open_store(max_bytes=50_000))
    for number in range(40):
        store.append_batch([Document(None, {}, np.full(1000, number, np.uint32))])
        store.maintenance.work()
    store.writer.index.settle()
    assert store.stats().bytes <= 50_000
    assert store.stats().tokens >= 1000
    assert store.stats().evicted_tokens >= 30_000


def test_groups_that_are_not_used_go_first(open_store: OpenStore) -> None:
    store = without_keeper(open_store(max_tokens=100, evict="use"))
    for number in range(10):
        store.append([number] * 10, group=f"group {number}")
    store.lookup([0], group="group 0")
    store.draft([1], group="group 1")
    store.append([2], group="group 2")
    store.maintenance.work()
    assert first_tokens(store) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 2]


def test_a_full_group_loses_its_oldest_documents(open_store: OpenStore) -> None:
    store = open_store(max_group_tokens=80)
    store.append([9] * 20)
    for number in range(9):
        appended = store.append([number] * 10, group="g")
    assert appended.replaced == 2
    assert first_tokens(store) == [9, 2, 3, 4, 5, 6, 7, 8]
    assert store.group_stats("g").tokens == 70
    assert first_tokens(open_store()) == [9, 2, 3, 4, 5, 6, 7, 8]


def test_old_documents_go(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = without_keeper(open_store(ttl_seconds=60))
    now = store.writer.clock.now()
    for token, passed in ((1, 0), (2, 30), (3, 80)):
        monkeypatch.setattr(store.writer.clock, "now", lambda passed=passed: now + passed)
        store.append([token], group="g" if token == 2 else None)
    store.maintenance.work()
    assert first_tokens(store) == [2, 3]


def test_published_documents_go_in_whole_segments(open_store: OpenStore) -> None:
    store = without_keeper(open_store(max_tokens=100))
    for number in range(6):
        store.append_batch(
            [Document(f"{number}", {}, np.full(20, number, np.uint32)), Document("x", {}, np.array([40]))]
        )
        store.flush()
        if number == 2:
            store.delete(["x"])
        store.maintenance.work()
    stats = store.stats()
    assert stats.tokens + stats.published_tokens <= 100
    assert (stats.evicted_documents, stats.evicted_tokens) == (2, 40)
    assert first_tokens(store) == [2, 3, 40, 4, 40, 5, 40]
    assert store.lookup([40]) == (1, 3)
    assert first_tokens(open_store()) == [2, 3, 40, 4, 40, 5, 40]


def test_the_last_segment_does_not_outlive_newer_documents(open_store: OpenStore) -> None:
    """A generation holds at least one segment, so newer documents in memory went before the only one."""
    store = without_keeper(open_store(max_tokens=100))
    store.append([0] * 20)
    store.flush()
    for number in range(1, 16):
        store.append([number] * 20)
    store.maintenance.work()
    left = first_tokens(store)
    assert left == list(range(16 - len(left), 16))
    assert 80 <= store.stats().tokens + store.stats().published_tokens <= 100


def test_the_last_published_documents_expire(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = without_keeper(open_store(ttl_seconds=60, max_tokens=100))
    now = store.writer.clock.now()
    monkeypatch.setattr(store.writer.clock, "now", lambda: now)
    store.append([1, 2, 3], id="a")
    store.flush()
    now += 80
    for _ in range(2):
        store.maintenance.work()
        assert store.lookup([1, 2]) == (0, 0)
        assert (store.generation, store.stats().published_documents) == (2, 0)
    assert first_tokens(open_store()) == []
    store = without_keeper(open_store(ttl_seconds=60))
    monkeypatch.setattr(store.writer.clock, "now", lambda: now)
    store.append([4, 5])
    store.flush()
    store.maintenance.work()
    assert first_tokens(store) == [4]
    assert len(read_manifest(store.path).files()) == 1
    assert first_tokens(open_store()) == [4]


@pytest.mark.parametrize("flushes", [1, 40])
def test_no_document_outlives_its_time_by_much(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, flushes: int
) -> None:
    store = without_keeper(open_store(ttl_seconds=80))
    start = time = store.writer.clock.now()
    monkeypatch.setattr(store.writer.clock, "now", lambda: time)
    for number in range(40):
        store.append([number] * 5)
        if number % (40 // flushes) == 40 // flushes - 1:
            store.flush()
        time += 2
    assert len(live_segments(read_manifest(store.path))) <= 25
    for time in range(start + 80, start + 180):
        store.maintenance.work()
        ages = [time - start - 2 * token for token in first_tokens(store)]
        assert max(ages, default=0) <= 80 + 80 // 8
    assert first_tokens(store) == []


def test_facts_for_remote_readers_name_no_path(open_store: OpenStore) -> None:
    store = without_keeper(open_store())
    store.writer.log.fail("it cannot be flushed")
    store.maintenance.error = f"another process is writing to {store.path}; wait"
    stats = store.stats()
    assert stats.background_error == "another process is writing to store; wait"
    assert str(stats.log_failure).startswith("store/live/log/")
    store.writer.log.failure = None


def test_a_base_corpus_is_never_evicted(tmp_path: Path) -> None:
    make_store(tmp_path / "base", [[[1] * 50]], vocab_size=50).close()
    with LiveStore(tmp_path / "base", LiveSettings(max_tokens=20)) as store:
        without_keeper(store)
        for number in range(5):
            store.append([number] * 9)
            store.flush()
            store.maintenance.work()
        assert first_tokens(store) == [1, 3, 4]


def test_large_stores_publish_by_themselves(open_store: OpenStore) -> None:
    store = without_keeper(open_store(flush_tokens=100))
    store.append([1] * 99)
    store.append([2] * 99, group="g")
    store.maintenance.work()
    assert store.generation == 0
    store.append([3])
    store.maintenance.work()
    assert store.generation == 1
    assert (store.stats().published_tokens, store.stats().tokens) == (100, 99)


def test_a_flush_that_another_writer_hinders_is_tried_again(open_store: OpenStore) -> None:
    store = open_store(flush_tokens=10)
    with writer_lock(store.path):
        store.append([1] * 10)
        while store.stats().background_error is None:
            time.sleep(0.01)
        assert "another process is writing" in str(store.stats().background_error)
        assert store.stats().log_files == 1
        assert store.append([2]).sequence == 2
    while store.generation == 0 or store.stats().background_error is not None:
        time.sleep(0.01)
    assert first_tokens(store) == [1, 2]


def test_the_thread_works_when_a_bound_is_passed(open_store: OpenStore) -> None:
    store = open_store(max_tokens=50, flush_tokens=0)
    for number in range(20):
        store.append([number] * 10)
    while store.stats().tokens > 50:
        time.sleep(0.01)
    assert first_tokens(store)[-1] == 19


def test_a_full_disk_refuses_appends_and_answers_queries(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store(durability="always")
    store.append([1, 2, 3])
    size = store.stats().log_bytes
    with file_size_limit(size + 20):
        for change in (lambda: store.append([4] * 100), lambda: store.append([5] * 100, group="g"), store.flush):
            with pytest.raises(ResourceExhausted):
                change()
        assert store.lookup([1, 2]) == (2, 1)
        assert store.lookup([4]) == (0, 0)
    assert store.append([4, 5]).durable
    assert store.flush() == 1
    assert first_tokens(store) == first_tokens(open_store()) == [1, 4]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("durability", "maybe"),
        ("interval", 0),
        ("max_tokens", -1),
        ("evict", "random"),
        ("residency", "x"),
        ("threads", -1),
    ],
)
def test_settings_out_of_bounds_are_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=name):
        LiveSettings(**{name: value})  # type: ignore[arg-type]


def test_the_origins_of_one_append_are_bounded(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log record above 4 GiB would count as damage when the store is opened again."""
    assert 4 * MAX_BATCH_TOKENS + MAX_BATCH_ORIGIN_BYTES < MAX_BODY_BYTES // 2
    monkeypatch.setattr("suffolk.serving.store.live_store.batch.MAX_BATCH_ORIGIN_BYTES", 10_000)
    store = open_store()
    documents = [Document(f"{number}", {"note": "x" * 2000}, np.array([1, 2], np.uint32)) for number in range(5)]
    with pytest.raises(InvalidArgument, match=r"an append of 5 documents with 10\d\d\d bytes of ids.*may have 10000"):
        store.append_batch(documents)
    assert store.stats().documents == 0
    assert store.append_batch(documents[:4]).documents == 4
