"""Datastores that follow newly published generations."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import suffolk
from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.errors import NotFound, Unavailable
from suffolk.datastore.manifest import MANIFEST_NAME, publish, read_manifest
from suffolk.datastore.readers import wait_for_readers
from suffolk.datastore.watched_datastore import WatchedDatastore
from tests.support.brute_force import assert_same_tree
from tests.support.stores import append_documents, make_store, make_word_store
from tests.support.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_store(tmp_path / "store", [[[1, 2, 3], [1, 2, 4]]], vocab_size=9).close()
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[WatchedDatastore]:
    with WatchedDatastore(path) as watched:
        yield watched


def test_every_kind_of_change_is_followed(path: Path, store: WatchedDatastore) -> None:
    assert store.lookup([1, 2]) == (2, 2)
    append_documents(path, [[1, 2, 5]])
    until(lambda: store.lookup([1, 2]) == (2, 3))
    delete(path, ["segment 0 document 0"])
    until(lambda: store.lookup([1, 2]) == (2, 2))
    assert store.lookup([1, 2, 3]) == (0, 0)
    compact(path)
    until(lambda: store.info()["deleted_documents"] == 0)
    assert (store.generation, store.lookup([1, 2])) == (4, (2, 2))
    with open_datastore(path) as fresh:
        assert_same_tree(store.draft([1, 2]), fresh.draft([1, 2]))


def test_a_running_call_keeps_its_generation(path: Path, store: WatchedDatastore) -> None:
    begun = store.current
    append_documents(path, [[1, 2, 5]])
    until(lambda: store.generation == 2)
    until(lambda: store._replaced is None)  # the thread has let go of it
    assert begun.lookup([1, 2]) == (2, 2)


def test_both_generations_share_the_segments_that_they_have_in_common(path: Path, store: WatchedDatastore) -> None:
    before = store.current._segments[0].native
    append_documents(path, [[1, 2, 5]])
    until(lambda: store.generation == 2)
    assert [each.native is before for each in store.current._segments] == [True, False]


def test_a_tokenizer_is_read_once_for_all_generations(tmp_path: Path) -> None:
    """Regression: the first call with a text waited until the tokenizer was read again."""
    make_word_store(tmp_path / "words")
    with WatchedDatastore(tmp_path / "words") as watched:
        before = watched.tokenizer()
        append_documents(tmp_path / "words", [[0, 1]])
        until(lambda: watched.generation == 2)
        assert before is not None
        assert watched.tokenizer() is before


def test_no_call_fails_while_generations_are_published(path: Path, store: WatchedDatastore) -> None:
    counts: list[list[int]] = [[] for _ in range(3)]
    failures: list[BaseException] = []
    stop = threading.Event()

    def ask(seen: list[int]) -> None:
        try:
            while not stop.is_set():
                seen.append(store.lookup([1, 2]).count)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=ask, args=(seen,)) for seen in counts]
    for thread in threads:
        thread.start()
    for _ in range(20):
        append_documents(path, [[1, 2, 5]])
        if read_manifest(path).generation % 5 == 0:
            compact(path)
        store.refresh()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    for seen in counts:
        assert seen == sorted(seen)  # no answer is from an older generation than the one before it
        assert set(seen) <= set(range(2, 23))
    assert store.lookup([1, 2]).count == 22


def test_a_damaged_generation_is_not_served(
    path: Path, store: WatchedDatastore, caplog: pytest.LogCaptureFixture
) -> None:
    appended = append_documents(path, [[1, 2, 5]])
    until(lambda: store.generation == 2)
    good = (path / MANIFEST_NAME).read_bytes()
    (path / MANIFEST_NAME).write_bytes(b"{")
    until(lambda: "MANIFEST is damaged" in store.problem)
    assert store.lookup([1, 2]) == (2, 3)
    assert "generation 2 is still served" in caplog.text
    (path / MANIFEST_NAME).write_bytes(good)
    until(lambda: store.problem == "")

    entry = appended.segments[-1]
    content, copy = (path / "segments" / entry.name).read_bytes(), path / "segments" / "copy.seg"
    copy.write_bytes(bytes(len(content)))
    publish(path, appended.next(segments=(*appended.segments, replace(entry, name=copy.name))))
    until(lambda: "copy.seg" in store.problem)
    assert store.lookup([1, 2]) == (2, 3)
    copy.write_bytes(content)
    until(lambda: store.generation == 3)
    assert (store.problem, store.lookup([1, 2])) == ("", (2, 4))


def test_another_vocabulary_is_refused(path: Path, store: WatchedDatastore, caplog: pytest.LogCaptureFixture) -> None:
    publish(path, replace(read_manifest(path).next(), order_depth=32))
    until(lambda: store.problem != "")
    assert "generation 2 has order_depth 32, and callers rely on 64; restart this process to serve it" in store.problem
    assert store.generation == 1
    [reader] = wait_for_readers(path, 2)
    assert (reader.generation, reader.seen, reader.problem) == (1, 2, store.problem)
    assert [record.levelno for record in caplog.records if "order_depth" in record.message] == [logging.ERROR]


def test_a_folder_that_is_gone_and_back(path: Path, store: WatchedDatastore, tmp_path: Path) -> None:
    path.rename(tmp_path / "aside")
    until(lambda: "is no datastore" in store.problem)
    assert store.lookup([1, 2]) == (2, 2)
    shutil.copytree(tmp_path / "aside", path)
    until(lambda: store.problem == "")


def test_a_closed_store(path: Path) -> None:
    before = set(threading.enumerate())
    store = suffolk.open(path, watch=True)
    assert isinstance(store, WatchedDatastore)
    assert (store.name, store.vocab_size, store.tokenizer()) == ("store", 9, None)
    store.close()
    store.close()
    for call in (lambda: store.lookup([1]), store.info, store.refresh):
        with pytest.raises(Unavailable, match="is closed; open it again"):
            call()
    assert list((path / "readers").iterdir()) == []
    with pytest.raises(NotFound):
        suffolk.open(path / "none", watch=True)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("watch-")]
