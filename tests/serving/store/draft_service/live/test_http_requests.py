"""Requests over HTTP that clients get a little wrong, or write in another way: queries, compressed bodies, null metadata."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from suffolk.datastore.documents import Document
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import LiveStore
from tests.support.http_requests import ask

LINES = b'{"tokens": [1, 2, 3], "id": "a"}\n'
BODY = {"datastore": "chat", "documents": [{"tokens": [1]}]}
STREAM = "/v1/append_stream?datastore=chat"


@pytest.mark.parametrize(
    ("method", "path", "body", "text"),
    [
        ("POST", f"{STREAM}&groups=g", LINES, "groups: unknown key of the query (did you mean group?); the keys are datastore,"),
        ("POST", f"{STREAM}&group=g&replace=true", LINES, "replace: unknown key of the query"),
        ("POST", f"{STREAM}&group=g&group=h", LINES, "group: it is twice in the query; give it once"),
        ("POST", "/v1/append?group=g", BODY, "group: unknown key of the query; the keys are in the body"),
        ("GET", "/v1/document?datastore=chat&name=a", None, "name: unknown key of the query; the keys are datastore, id"),
        ("GET", "/v1/stats?datastore=chat&groups=g", None, "groups: unknown key of the query"),
        ("GET", "/v1/tokenizer?store=chat", None, "store: unknown key of the query (did you mean datastore?); the keys are"),
        ("GET", "/v1/info?datastore=chat", None, "datastore: unknown key of the query"),
    ],
)  # fmt: skip
def test_queries_have_no_unknown_keys(
    method: str, path: str, body: object, text: str, server: DraftServer, store: LiveStore
) -> None:
    """A misspelled group would leave documents out of their group, and a missing ``replace`` the earlier ones in it."""
    status, _, reply = ask(server, method, path, body)
    assert (status, text in reply["error"]["message"]) == (400, True), reply
    assert store.stats().documents == 0


@pytest.mark.parametrize("path", [STREAM, "/v1/append"])
def test_compressed_bodies_are_refused_as_such(path: str, server: DraftServer) -> None:
    status, _, reply = ask(server, "POST", path, gzip.compress(LINES), {"Content-Encoding": "gzip"})
    assert (status, reply["error"]["message"]) == (415, "the content encoding is 'gzip'; send the body as it is")


def test_metadata_that_is_null_is_left_out(server: DraftServer, store: LiveStore, remote: RemoteDatastore) -> None:
    """As in a build, whichever way a document comes."""
    given = {"stars": 3, "license": None}
    documents = [{"tokens": [1], "metadata": given}, {"tokens": [2], "metadata": None}]
    assert ask(server, "POST", "/v1/append", {"datastore": "chat", "documents": documents})[0] == 200
    assert ask(server, "POST", STREAM, b'{"tokens": [3], "metadata": {"stars": 3, "license": null}}')[0] == 200
    remote.append([4], metadata=given)  # type: ignore[arg-type]
    store.append_batch([Document(None, {"license": None}, np.array([5], np.uint32))])  # type: ignore[dict-item]
    found = [dict(each.metadata) for each in store.documents()]
    assert found == [{"stars": 3}, {}, {"stars": 3}, {"stars": 3}, {}]


@pytest.mark.parametrize("path", [STREAM, "/v1/append"])
def test_character_sets(path: str, server: DraftServer, store: LiveStore) -> None:
    """A stream of lines is read in parts, which other character sets than UTF-8 do not allow."""
    data = LINES if path == STREAM else json.dumps(BODY).encode()
    assert ask(server, "POST", path, data, {"Content-Type": "application/json; charset=utf-8"})[0] == 200
    kind = {"Content-Type": "application/json; charset=utf-16"}
    status = ask(server, "POST", path, data.decode().encode("utf-16"), kind)[0]
    assert (status, store.stats().documents) == ((415, 1) if path == STREAM else (200, 2))


def test_null_means_that_a_key_is_left_out(server: DraftServer, store: LiveStore) -> None:
    """Clients in Go, Java and JavaScript write every key."""
    document = {"tokens": [1, 2, 3], "text": None, "id": "a", "metadata": None, "group": None}
    nulls = dict.fromkeys(("group", "replace", "key"))
    assert ask(server, "POST", "/v1/append", {"datastore": "chat", "documents": [document], **nulls})[0] == 200
    assert ask(server, "POST", STREAM, json.dumps(document | {"id": "b"}).encode())[0] == 200
    nulls = dict.fromkeys(("datastores", "text", "group", "scope", "max_match", "min_match", "max_depth", "max_nodes"))
    nulls |= dict.fromkeys(("least_counts", "texts", "by_datastore"))
    asked = {"contexts": [[1, 2]], "datastore": "chat"}
    assert ask(server, "POST", "/v1/draft", asked | nulls)[2] == ask(server, "POST", "/v1/draft", asked)[2]
    named = {"contexts": [[1, 2]], "datastore": None, "datastores": [{"name": "chat", "weight": None, "group": None}]}
    assert ask(server, "POST", "/v1/draft", named)[2] == ask(server, "POST", "/v1/draft", asked)[2]
    nulls = dict.fromkeys(("text", "limit", "context", "before", "group", "scope", "texts"))
    asked = {"tokens": [1, 2], "datastore": "chat"}
    found = ask(server, "POST", "/v1/occurrences", asked | nulls)[2]
    assert found == ask(server, "POST", "/v1/occurrences", asked)[2]
    assert ask(server, "POST", "/v1/lookup", {"contexts": None, "text": None})[0] == 400
    assert ask(server, "POST", "/v1/delete", {"datastore": "chat", "ids": None, "where": None, "group": None})[0] == 400
    assert store.stats().documents == 2
    assert (
        ask(server, "POST", "/v1/delete", {"datastore": "chat", "ids": ["a"], "where": None, "group": None})[0] == 200
    )


def test_whole_floats_are_integers(server: DraftServer) -> None:
    """Lua, and JavaScript's numbers in some writers, have no others. Token ids are integers alone."""
    asked = {"contexts": [[1, 2]], "max_match": 4, "max_depth": 3, "max_nodes": 5, "least_counts": [1]}
    asked["datastores"] = [{"name": "chat", "weight": 2}]
    floats = json.loads(json.dumps(asked), parse_int=float) | {"contexts": [[1, 2]]}
    assert ask(server, "POST", "/v1/draft", floats)[2] == ask(server, "POST", "/v1/draft", asked)[2]
    status, _, reply = ask(server, "POST", "/v1/draft", asked | {"max_nodes": 5.5})
    assert (status, reply["error"]["message"]) == (
        400,
        "max_nodes is 5.5; it must be a whole number or an array",
    )
