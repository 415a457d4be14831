"""A live store takes up what other processes publish, and says so."""

from __future__ import annotations

from suffolk.build_index.delete import delete
from suffolk.datastore.manifest import MANIFEST_NAME
from suffolk.datastore.readers import read_readers, wait_for_readers
from tests.serving.store.live_store.conftest import OpenStore
from tests.support.waiting import until


def test_a_deletion_by_another_process_is_taken_up_and_reported(open_store: OpenStore) -> None:
    store = open_store()
    assert [(each.generation, each.problem) for each in read_readers(store.path)] == [(0, "")]
    store.append([1, 2, 3], id="a")
    store.append([1, 2, 4], id="b")
    store.flush()
    store.append([1, 2, 5], id="c")
    generation = delete(store.path, ["a"]).generation
    assert [each.generation for each in wait_for_readers(store.path, generation)] == [generation]
    assert (store.lookup([1, 2]), store.lookup([1, 2, 3], min_match=3)) == ((2, 2), (0, 0))
    good = (store.path / MANIFEST_NAME).read_bytes()
    (store.path / MANIFEST_NAME).write_bytes(b"{")
    until(lambda: "is damaged" in store.problem)
    assert store.lookup([1, 2]) == (2, 2)
    (store.path / MANIFEST_NAME).write_bytes(good)
    until(lambda: store.problem == "")
