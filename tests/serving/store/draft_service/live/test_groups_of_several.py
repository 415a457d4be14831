"""Requests that search several live datastores as one, with a group in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import InvalidArgument, SuffolkError, Unsupported
from suffolk.datastore.merged import MergedDatastore
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.store.draft_service.disclosure import MinCount
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import LiveStore, create_live_store
from tests.support.brute_force import assert_same_tree
from tests.support.draft_server import CONTEXTS, DOCUMENTS, VOCABULARY, connected, serving
from tests.support.http_requests import ask
from tests.support.stores import make_store

PARTS = {
    ("chat", "alice"): DOCUMENTS[0:1],
    ("chat", "bob"): DOCUMENTS[1:2],
    ("notes", "alice"): DOCUMENTS[2:3],
    ("notes", "carol"): DOCUMENTS[3:5],
}
"""Documents by datastore and group."""
GROUPS: dict[str, str | list[str | None]] = {"chat": "alice", "notes": ["carol", "alice", None]}
ASKED = [CONTEXTS[7], CONTEXTS[16], CONTEXTS[3]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LiveStore]]:
    folder = tmp_path_factory.mktemp("stores")
    with (
        create_live_store(folder / "chat", vocab_size=VOCABULARY) as chat,
        create_live_store(folder / "notes", vocab_size=VOCABULARY) as notes,
    ):
        found = {"chat": chat, "notes": notes}
        for (store, group), documents in PARTS.items():
            found[store].append_batch([Document(None, {}, np.array(each)) for each in documents], group)
        yield found


@pytest.fixture(scope="module")
def server(stores: dict[str, LiveStore], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DraftServer]:
    path = tmp_path_factory.mktemp("files") / "files"
    with make_store(path, [[[1, 2, 3]]], vocab_size=VOCABULARY) as files, serving({**stores, "files": files}) as server:
        yield server


@pytest.fixture(scope="module")
def remote(server: DraftServer) -> Iterator[RemoteDatastore]:
    with connected(server, "chat:2,notes") as remote:
        yield remote


def group_of(groups: Mapping[str, Any], store: str, place: int) -> str | None:
    given = groups.get(store)
    return given if given is None or isinstance(given, str) else given[place]


def documents_of(place: int) -> list[list[int]]:
    """What the query at ``place`` of GROUPS finds in its groups: each document as often as the weight of its datastore."""
    weights = {"chat": 2, "notes": 1}
    return [
        document
        for (store, group), documents in PARTS.items()
        if group == group_of(GROUPS, store, place)
        for document in documents * weights[store]
    ]


def test_the_groups_are_searched_as_one(
    stores: dict[str, LiveStore], server: DraftServer, remote: RemoteDatastore, tmp_path: Path
) -> None:
    merged = MergedDatastore(stores, [2, 1])
    body = {
        "contexts": ASKED,
        "scope": "group",
        "datastores": [{"name": "chat", "weight": 2, "group": "alice"}, {"name": "notes", "group": GROUPS["notes"]}],
    }
    over_http = ask(server, "POST", "/v1/draft", body)[2]["trees"]
    drafts = [store.draft_batch(ASKED, group=GROUPS, scope="group") for store in (merged, remote)]
    matches = [store.lookup_batch(ASKED, group=GROUPS, scope="group") for store in (merged, remote)]
    for place, context in enumerate(ASKED):
        with make_store(tmp_path / str(place), [documents_of(place)], vocab_size=VOCABULARY) as alone:
            expected = alone.draft(context)
            assert expected.match_count > 0
            for trees in drafts:
                assert_same_tree(trees[place], expected)
            assert [found[place] for found in matches] == [alone.lookup(context)] * 2
            assert over_http[place]["tokens"] == expected.tokens.tolist()
            assert over_http[place]["match_count"] == expected.match_count


def test_the_groups_come_first_and_then_everything(stores: dict[str, LiveStore], remote: RemoteDatastore) -> None:
    merged = MergedDatastore(stores, [2, 1])
    for found, local in zip(
        remote.draft_batch(ASKED, group=GROUPS), merged.draft_batch(ASKED, group=GROUPS), strict=True
    ):
        assert_same_tree(found, local)
    unknown = {"chat": "nobody", "notes": "nobody"}
    assert remote.lookup_batch(ASKED, group=unknown) == merged.lookup_batch(ASKED)
    hiding = MinCount(merged, 2)
    for match, own in zip(
        hiding.lookup_batch(ASKED, group=GROUPS), merged.lookup_batch(ASKED, group=GROUPS), strict=True
    ):
        assert match.count >= 2 or match == (0, 0) or own.count < 2


def test_one_datastore_takes_its_group_in_either_way(server: DraftServer) -> None:
    with connected(server, "chat") as chat:
        assert chat.lookup_batch(ASKED, group={"chat": "bob"}) == chat.lookup_batch(ASKED, group="bob")
    body = {"contexts": ASKED, "datastores": [{"name": "chat", "group": "bob"}]}
    alone = {"contexts": ASKED, "datastores": [{"name": "chat"}], "group": "bob"}
    both = [ask(server, "POST", "/v1/lookup", each)[2] for each in (body, alone)]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("names", "groups", "error", "text"),
    [
        (
            "chat,notes",
            {"maps": "a"},
            InvalidArgument,
            "group: 'maps' is none of the datastores that are searched: chat, ?notes",
        ),
        (
            "chat,notes",
            {"chat": ["a", "b"]},
            InvalidArgument,
            "2 groups for 3 contexts|groups has 2 entries for 3 contexts",
        ),
        ("chat,notes", {"chat": 5}, InvalidArgument, "group is of type int"),
        ("chat,files", {"files": "a"}, Unsupported, "datastore files has no groups, only live ones have"),
    ],
)
def test_groups_that_cannot_be_searched(
    names: str, groups: Any, error: type[SuffolkError], text: str, server: DraftServer
) -> None:
    datastores = server.service._datastores
    local = MergedDatastore({name: datastores[name] for name in names.split(",")})
    with connected(server, names) as client:
        for store in (local, client):
            with pytest.raises(error, match=text):
                store.lookup_batch(ASKED, group=groups)


def test_groups_are_given_in_one_way(server: DraftServer, stores: dict[str, LiveStore]) -> None:
    chosen = [{"name": "chat", "group": "alice"}, {"name": "notes"}]
    for path, more, text in (
        ("/v1/lookup", {"group": "bob"}, "groups are given for single datastores and for all; give one of the two"),
        (
            "/v1/lookup",
            {"scope": "group", "contexts": [[1]], "datastores": [{"name": "chat"}]},
            "a context has no group",
        ),
        ("/v1/occurrences", {"tokens": [1]}, "their groups are for drafts and lookups; name one group for the request"),
    ):
        body = {"datastores": chosen} | ({} if path == "/v1/occurrences" else {"contexts": ASKED}) | more
        status, _, reply = ask(server, "POST", path, body)
        assert status == 400
        assert text in reply["error"]["message"]
    with pytest.raises(InvalidArgument, match="group is a dict, for several datastores searched as one"):
        stores["chat"].lookup_batch(ASKED, group={"chat": "alice"})
