"""A live store answers with all that was appended, over flushes, restarts, deletions and other processes' generations."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from suffolk.build_index.compact import compact
from suffolk.build_index.delete import delete
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unavailable, Unsupported
from suffolk.serving.store.live_store.store import LiveStore, create_live_store, open_live_store
from tests.serving.store.live_store.conftest import VOCABULARY, OpenStore
from tests.support.stores import make_store, make_word_store


def document(*tokens: int, source: str | None = None, **metadata: str) -> Document:
    return Document(source, metadata, np.array(tokens, np.uint32))


def held(store: LiveStore) -> list[list[int]]:
    """All documents; the counts of their first tokens must agree."""
    documents = [each.tokens.tolist() for each in store.documents()]
    for token in {each[0] for each in documents}:
        expected = sum(each.count(token) for each in documents)
        assert store.lookup([token], scope="store") == (1, expected)
    return documents


def test_an_append_is_found_by_the_next_query(open_store: OpenStore) -> None:
    store = open_store()
    assert store.lookup([1, 2]) == (0, 0)
    appended = store.append([1, 2, 3], id="a", metadata={"license": "mit"})
    assert (appended.sequence, appended.documents, appended.tokens, appended.replaced) == (1, 1, 3, 0)
    assert store.lookup([1, 2]) == (2, 1)
    assert store.draft([1, 2]).tokens.tolist() == [3]
    assert store.append_batch([document(1, 2, 4), document(9)]).sequence == 2
    assert store.lookup([1, 2]) == (2, 2)
    assert [(each.source, dict(each.metadata)) for each in store.documents()][0] == ("a", {"license": "mit"})
    assert store.info()["documents"] == 3


def test_it_is_found_after_the_store_is_opened_again(open_store: OpenStore) -> None:
    for durability in ("always", "interval", "none"):
        store = open_store(durability=durability)
        before = held(store)
        appended = store.append([7, 8, len(before)], group="g")
        assert appended.durable or durability != "always"
        store = open_store()
        assert held(store) == [*before, [7, 8, len(before)]]
        assert store.group_stats("g").documents == len(before) + 1
        assert store.append([1]).sequence == appended.sequence + 1
        store.writer.remove([appended.sequence + 1])
        assert held(open_store()) == [*before, [7, 8, len(before)]]


def test_groups_are_searched_alone_or_first(open_store: OpenStore) -> None:
    store = open_store()
    store.append([1, 2, 3], group="a")
    store.append([1, 2, 4], group="b")
    store.append([5, 2, 6])
    assert store.lookup([1, 2], group="a") == (2, 1)
    assert store.lookup([1, 2], scope="store") == (2, 2)
    assert store.draft([1, 2], group="b", scope="group").tokens.tolist() == [4]
    assert sorted(store.draft([1, 2], group="b", scope="group_first").tokens.tolist()) == [3, 4]
    assert store.lookup([1, 2], group="unknown", scope="group") == (0, 0)
    assert store.lookup([1, 2], group="unknown") == (2, 2)
    assert store.lookup_batch([[1, 2], [1, 2]], group=["a", None]) == [(2, 1), (2, 2)]
    with pytest.raises(InvalidArgument, match="a context has no group"):
        store.lookup([1], scope="group")
    with pytest.raises(InvalidArgument, match="scope is 'all'"):
        store.lookup([1], group="a", scope="all")
    with pytest.raises(NotFound, match="group 'c' has no documents"):
        store.group_stats("c")


def test_replace_swaps_the_content_of_a_group(open_store: OpenStore) -> None:
    store = open_store()
    store.append_batch([document(1, 2, 3), document(1, 2, 4)], ["a", "b"])
    assert store.append_batch([document(1, 2, 5)], "a", replace=True).replaced == 1
    for _ in range(2):
        assert held(store) == [[1, 2, 4], [1, 2, 5]]
        assert store.lookup([1, 2], group="a", scope="group") == (2, 1)
        store = open_store()
    with pytest.raises(InvalidArgument, match="name the group whose content it replaces"):
        store.append([1], replace=True)


@pytest.mark.parametrize("count", [1, 3, 65])
def test_ids_select_exactly_their_documents(open_store: OpenStore, count: int) -> None:
    names = ["a", "ab", 'a"', 'a","metadata":{"k":1', "é\n", "\\", *map(str, range(60))]
    store = open_store()
    store.append_batch([document(1, 2, source=name, k="1") for name in names] + [document(1, 3)])
    for start in range(0, len(names), 7):
        ids = (names[start:] + names)[:count]
        report = store.delete([*ids, "b"], dry_run=True)
        assert (report.documents, report.unknown_ids) == (len(ids), ("b",))
        assert store.delete([*ids, "b"], ["k=1"], dry_run=True) == report
        assert store.get(ids[0]).sequence == names.index(ids[0]) + 1


def test_delete_takes_ids_conditions_and_groups(open_store: OpenStore) -> None:
    store = open_store()
    store.append_batch([document(1, 2, source="x", license="mit"), document(1, 3, source="y", license="gpl")])
    store.append([1, 4], id="z", group="a")
    store.flush()
    store.append([1, 5], id="x")
    store.append([1, 6], id="w", metadata={"kind": "log"})
    report = store.delete(ids=["x", "unknown"])
    assert (report.documents, report.tokens, report.unknown_ids) == (2, 4, ("unknown",))
    assert held(store) == [[1, 3], [1, 4], [1, 6]]
    assert store.delete(where=["kind=log"]).documents == 1
    assert store.delete(where=["license=gpl"]).documents == 1
    with pytest.raises(InvalidArgument, match="no document has the field 'lisence'"):
        store.delete(where=["lisence=gpl"])
    assert store.delete(group="a").documents == 1
    with pytest.raises(NotFound, match="has no documents"):
        store.delete(group="a")
    with pytest.raises(InvalidArgument, match="give one of them"):
        store.delete(ids=["x"], group="a")
    assert held(store) == held(open_store()) == []


def test_threads_append_search_and_flush_at_the_same_time(open_store: OpenStore) -> None:
    store = open_store(durability="always", flush_tokens=200)
    errors: list[BaseException] = []

    def append(thread: int) -> None:
        try:
            for number in range(60):
                before = store.lookup([thread], scope="store").count
                store.append([thread, number % 40], group="g" if number % 5 == 0 else None)
                assert store.lookup([thread], scope="store").count == before + 1
        except BaseException as error:  # noqa: BLE001  the test shows it
            errors.append(error)

    threads = [threading.Thread(target=append, args=(thread,)) for thread in range(40, 44)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    store.flush()
    for _ in range(2):
        assert sorted(held(store)) == sorted([thread, number % 40] for thread in range(40, 44) for number in range(60))
        store = open_store()


def test_flush_publishes_what_has_no_group(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    assert store.flush() is None
    with pytest.raises(NotFound, match="has published nothing"):
        open_datastore(tmp_path / "store")
    store.append_batch([document(1, 2, 3, source="a", license="mit"), document(1, 2, 4)], [None, "g"])
    assert store.flush() == 1
    stats = store.stats()
    assert (stats.generation, stats.published_documents, stats.documents, stats.flushed_sequence) == (1, 1, 1, 2)
    with open_datastore(tmp_path / "store") as published:
        published.verify("full")
        assert [(each.source, dict(each.metadata)) for each in published.documents()] == [("a", {"license": "mit"})]
    store.append([1, 2, 5])
    assert store.lookup([1, 2], scope="store") == (2, 3)
    assert store.flush() == 2
    assert store.flush() is None
    assert held(store) == held(open_store()) == [[1, 2, 3], [1, 2, 5], [1, 2, 4]]
    assert open_store().append([1]).sequence == 4


def test_flushes_merge_small_segments(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    for number in range(40):
        store.append([1, 2, number], id=f"{number}", metadata={"number": f"{number}"})
        store.flush()
        assert store.stats().segments <= 6
        if number == 20:
            store.delete(ids=["3"])
    expected = [number for number in range(40) if number != 3]
    with open_datastore(tmp_path / "store") as published:
        published.verify("full")
        assert [each.source for each in published.documents()] == [f"{number}" for number in expected]
        assert [dict(each.metadata) for each in published.documents()][-1] == {"number": "39"}
    assert held(store) == [[1, 2, number] for number in expected]
    assert len(list((tmp_path / "store" / "segments").iterdir())) == len(published.manifest.files())


def test_flushing_shortens_the_log(open_store: OpenStore, tmp_path: Path) -> None:
    store = open_store()
    for number in range(20):
        store.append([number])
        store.flush()
    assert len(list((tmp_path / "store" / "live" / "log").iterdir())) <= 3
    assert store.stats().log_bytes < 1000


def test_a_checkpoint_keeps_what_is_left(open_store: OpenStore) -> None:
    store = open_store()
    for number in range(30):
        store.append([1, number], group="a", replace=True)
        store.append([2, number], group=f"b{number % 3}")
    before, size = held(store), store.stats().log_bytes
    assert store.writer.checkpoint(force=True)
    assert store.stats().log_bytes < size
    store.append([3], group="c")
    store.append([4], group="a", replace=True)
    expected = sorted(held(store))
    assert len(expected) == len(before) + 1
    assert sorted(held(open_store())) == expected


def test_it_adds_to_a_published_datastore(tmp_path: Path) -> None:
    make_store(tmp_path / "base", [[[1, 2, 3], [1, 2, 4]]], vocab_size=VOCABULARY).close()
    with open_live_store(tmp_path / "base") as store:
        store.append([1, 2, 5])
        assert store.lookup([1, 2]) == (2, 3)
        delete(tmp_path / "base", ["segment 0 document 0"], threads=1)  # as another process does
        while store.generation == 1:  # a thread takes it up
            time.sleep(0.01)
        assert not store.refresh()
        assert store.lookup([1, 2]) == (2, 2)
        store.flush()
        compact(tmp_path / "base", threads=1)
        store.refresh()
        assert held(store) == [[1, 2, 4], [1, 2, 5]]
    with open_live_store(tmp_path / "base") as store:
        assert held(store) == [[1, 2, 4], [1, 2, 5]]


def test_texts_are_encoded_with_its_tokenizer(tmp_path: Path) -> None:
    words = make_word_store(tmp_path / "words")
    with create_live_store(tmp_path / "live", tokenizer=next(Path(words).glob("tokenizer*.json"))) as store:
        store.append("the dog sat", id="dogs")
        assert store.decode(store.draft("the dog").tokens) == "sat"
        store.flush()
        assert store.lookup("the dog") == (2, 1)
    with open_datastore(tmp_path / "live") as published:
        assert published.lookup("the dog") == (2, 1)


def test_occurrences_name_their_documents(open_store: OpenStore) -> None:
    store = open_store()
    store.append([7, 1, 2, 3], id="file", metadata={"license": "mit"})
    store.flush()
    store.append([1, 2, 4, 5], id="memory", group="g")
    found = sorted(store.occurrences([1, 2], context=1), key=lambda each: str(each.source))
    assert [(each.source, each.document, each.offset, each.tokens.tolist()) for each in found] == [
        ("file", 0, 1, [1, 2, 3]),
        ("memory", 2, 0, [1, 2, 4]),
    ]
    assert found[1].segment == ""
    with pytest.raises(InvalidArgument, match="a pattern of 0 tokens"):
        store.occurrences([])


def test_one_process_appends(open_store: OpenStore, tmp_path: Path) -> None:
    open_store()
    with pytest.raises(
        Unavailable,
        match="through its server, such as grpc://HOST:PORT/store, or stop it",
    ):
        open_live_store(tmp_path / "store")
    with pytest.raises(InvalidArgument, match="exists"):
        create_live_store(tmp_path / "store", vocab_size=5)
    with pytest.raises(NotFound):
        open_live_store(tmp_path / "none")
    with pytest.raises(InvalidArgument, match="give the tokenizer of the model"):
        create_live_store(tmp_path / "other")


def test_a_generation_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path / "base", [[[1, 2, 3]]], vocab_size=VOCABULARY).close()
    open_live_store(tmp_path / "base").close()
    other = make_store(tmp_path / "other", [[[1, 2, 3]]], vocab_size=9)
    other.close()
    (tmp_path / "base" / "live").rename(tmp_path / "other" / "live")
    with pytest.raises(Unsupported, match="has vocab_size 9, and its live documents have 50"):
        open_live_store(tmp_path / "other")


def test_bad_documents_change_nothing(open_store: OpenStore) -> None:
    store = open_store(max_tokens=100, max_group_tokens=20)
    store.append([1, 2])
    size = store.stats().log_bytes
    for documents, group, message in (
        ([document(1), document(50)], None, "document 1 has token id 50; ids must be 0 to 49"),
        ([document()], None, "document 0 has 0 tokens"),
        ([], None, "no documents are given"),
        ([document(*[1] * 101)], None, r"document 0 has 101 tokens; the store \(max_tokens\) may have 100"),
        ([document(*[1] * 60)] * 2, None, "an append of 120 tokens"),
        ([document(*[1] * 21)], "g", r"document 0 has 21 tokens; a group \(max_group_tokens\) may have 20"),
        ([document(*[1] * 12)] * 2, "g", "group 'g': 24 tokens in one append"),
        ([document(1)], "", "group is ''"),
        ([document(1)], ["a", "b"], "2 groups for 1 documents"),
        ([document(1, source="s" * 5000)], None, "id is a text of 5000 characters"),
        ([Document("a", {"x": [1]}, np.array([1]))], None, "metadata field 'x' holds list"),  # type: ignore[dict-item]
        ([Document("a", {}, np.array([-1]))], None, "token id -1"),
        ([Document("a", {}, np.array([0.5]))], None, "no list of whole numbers"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            store.append_batch(documents, group)  # type: ignore[arg-type]
    assert store.stats().log_bytes == size
    assert held(store) == [[1, 2]]


def test_a_closed_store_refuses_calls(open_store: OpenStore) -> None:
    store = open_store()
    store.append([1])
    store.close()
    for call in (lambda: store.append([1]), lambda: store.lookup([1]), store.stats):
        with pytest.raises(Unavailable):
            call()


def test_a_log_without_its_identity_is_damage(tmp_path: Path) -> None:
    with create_live_store(tmp_path / "store", vocab_size=9) as store:
        store.append([1])
    (tmp_path / "store/live/identity.json").unlink()
    with pytest.raises(Corruption, match="identity.json is missing beside a log: without it no group is found"):
        open_live_store(tmp_path / "store")
