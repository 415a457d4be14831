"""Arguments of wrong types are refused by name, by a live store and by the client of one alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.store.live_store.store import LiveStore, create_live_store
from tests.support.draft_server import DOCUMENTS, VOCABULARY, connected, serving
from tests.support.stores import make_store

QUERIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "no context": (lambda store: store.lookup(None), r"contexts\[0\] is of type NoneType; token ids are a list of"),
    "a dict": (lambda store: store.draft({1: 2}), r"contexts\[0\] is of type dict"),
    "a generator": (lambda store: store.lookup(token for token in [1]), r"contexts\[0\] is of type generator"),
    "no list": (lambda store: store.lookup_batch(5), "contexts is of type int; give a list with the token ids of each"),
    "a text as a list": (lambda store: store.draft_batch("ab"), "contexts is of type str"),
    "numbers as contexts": (lambda store: store.lookup_batch([1, 2]), r"contexts\[0\] is of type int"),
    "texts as tokens": (lambda store: store.lookup(["a"]), "'a'|<U1"),
    "max_match": (lambda store: store.lookup([1], "3"), "max_match is '3', of type str; it must be a whole number"),
    "min_match": (lambda store: store.lookup_batch([[1]], 3, None), "min_match is None, of type NoneType"),
    "max_depth": (lambda store: store.draft_batch([[1]], max_depth=1.5), "max_depth is 1.5, of type float"),
    "max_nodes": (lambda store: store.draft([1], max_nodes=None), "max_nodes is None, of type NoneType"),
    "max_nodes of one": (
        lambda store: store.draft_batch([[1]], max_nodes=["3"]),
        r"max_nodes\[0\] is '3', of type str",
    ),
    "max_nodes of all": (
        lambda store: store.draft_batch([[1]], max_nodes=1.5),
        "max_nodes is 1.5, of type float; give a",
    ),
}
DOCUMENT = Document(None, {}, np.array([1], np.uint32))
CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "group": (lambda store: store.lookup_batch([[1]], group=5), "group is of type int; give a text, or a list with a"),
    "a group": (
        lambda store: store.draft_batch([[1], [2]], group=["a", 5]),
        r"group\[1\] is 5, of type int; it must be a",
    ),
    "scope": (lambda store: store.lookup_batch([[1]], scope=5), "scope is 5, of type int; it must be a text"),
    "no document": (lambda store: store.append(None), "document"),
    "a ragged document": (lambda store: store.append([[1], [2, 3]]), "document"),
    "id": (lambda store: store.append([1], id=5), "id is 5; it must be a text of 1 to 4096 characters"),
    "metadata": (lambda store: store.append([1], metadata=5), "metadata"),
    "replace": (
        lambda store: store.append([1], group="g", replace="x"),
        "replace is 'x', of type str; it must be True or",
    ),
    "no documents": (lambda store: store.append_batch(5), "documents is of type int; give a list of suffolk.Document"),
    "other documents": (
        lambda store: store.append_batch([[1]]),
        r"documents\[0\] is of type list; give a suffolk.Document",
    ),
    "one document": (lambda store: store.append_batch(DOCUMENT), "documents is of type Document"),
    "ids": (lambda store: store.delete(5), "ids is of type int; give a list of texts"),
    "an id that is none": (
        lambda store: store.delete([None]),
        r"ids\[0\] is None, of type NoneType; it must be a text",
    ),
    "where": (lambda store: store.delete(where=[5]), r"where\[0\] is 5, of type int; it must be a text"),
    "group to delete": (lambda store: store.delete(group=5), "group is 5; it must be a text of 1 to 256 characters"),
    "group to count": (lambda store: store.group_stats(None), "group is None; it must be a text of 1 to 256"),
    "half a character": (
        lambda store: store.append([1], group="\ud800"),
        "group has a surrogate at 0; decode its bytes",
    ),
}
STREAMS: dict[str, tuple[Callable[[Any], object], str]] = {
    "no documents": (lambda store: store.append_stream(None), "documents is of type NoneType; give a list"),
    "other documents": (
        lambda store: store.append_stream([[1]]),
        r"documents\[0\] is of type list; give a suffolk.Document",
    ),
    "no tokens": (lambda store: store.append_stream([Document(None, {}, 5)]), "documents"),  # type: ignore[arg-type]
    "group": (lambda store: store.append_stream([DOCUMENT], group=5), "group is of type int"),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStore]:
    with create_live_store(tmp_path_factory.mktemp("stores") / "chat", vocab_size=VOCABULARY) as store:
        store.append([1, 2, 3])
        yield store


@pytest.fixture(scope="module")
def client(local: LiveStore) -> Iterator[RemoteDatastore]:
    with serving({"chat": local}) as server, connected(server, "chat") as client:
        yield client


@pytest.mark.parametrize("name", [*QUERIES, *CHANGES])
def test_wrong_types(name: str, local: LiveStore, client: RemoteDatastore) -> None:
    call, text = (QUERIES | CHANGES)[name]
    for store in (local, client):
        with pytest.raises(InvalidArgument, match=text):
            call(store)
    assert local.stats().documents == 1  # regression: deleting [None] deleted every document without an id
    assert client.lookup([1, 2, 3], np.int64(3)) == (3, 1)


@pytest.mark.parametrize("name", STREAMS)
def test_wrong_types_of_streams(name: str, client: RemoteDatastore) -> None:
    call, text = STREAMS[name]
    with pytest.raises(InvalidArgument, match=text):
        call(client)


def test_a_datastore_on_disk_refuses_the_same(tmp_path: Path) -> None:
    with make_store(tmp_path / "disk", [DOCUMENTS], vocab_size=VOCABULARY) as store:
        for call, text in QUERIES.values():
            with pytest.raises(InvalidArgument, match=text):
                call(store)
        assert len(store.draft_batch([[1]], max_nodes=np.int32(3))[0]) == 3
