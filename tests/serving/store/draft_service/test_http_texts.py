"""Texts in HTTP messages: a text in place of tokens, the text of nodes and occurrences, and counts by datastore."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from suffolk.cli.main import main
from suffolk.datastore import limits
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import DeadlineExceeded
from suffolk.serving.net.identity import OPERATOR
from suffolk.serving.store.draft_service.http_messages import DraftBody, describe_tree
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.draft_service.service import DraftService
from tests.support.callers import acting_as
from tests.support.draft_server import serving
from tests.support.http_requests import ask
from tests.support.stores import byte_tokenizer

TEXTS = {"a": ["déjà vu", "déjà dit", "<script>alert(1)</script>"], "b": ["déjà vu", "ça va"]}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Datastore]]:
    """Two datastores of bytes."""
    folder = tmp_path_factory.mktemp("bytes")
    tokenizer = byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    opened = {}
    for name, texts in TEXTS.items():
        lines = [json.dumps({"text": text, "id": str(at)}) for at, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
        words = ["build", "--tokenizer", str(folder / "tokenizer.json"), "--output", str(folder / name)]
        assert main([*words, "--id-field", "id", str(folder / f"{name}.jsonl")]) == 0
        opened[name] = open_datastore(folder / name)
    yield opened
    for store in opened.values():
        store.close()


@pytest.fixture(scope="module")
def server(stores: dict[str, Datastore]) -> Iterator[DraftServer]:
    with serving(stores) as server:
        yield server


def post(server: DraftServer, path: str, body: dict[str, Any]) -> Any:
    status, headers, reply = ask(server, "POST", path, body)
    assert status == 200, reply
    assert float(headers["server-timing"].removeprefix("total;dur=")) < 60_000
    return reply


def test_a_text_is_a_context(stores: dict[str, Datastore], server: DraftServer) -> None:
    body = {"text": "x déj", "datastore": "a"}
    reply = post(server, "/v1/lookup", body)
    ids = stores["a"].encode("x déj")
    assert reply == {
        "matches": [{"length": 4, "count": 2}],
        "context": {"tokens": ids, "starts": [0, 1, 2, 3, 3, 4]},  # é has two tokens
    }
    drafted = post(server, "/v1/draft", body | {"max_nodes": 5})
    [expected] = post(server, "/v1/draft", {"contexts": [ids], "datastore": "a", "max_nodes": 5})["trees"]
    assert drafted == {"trees": [expected], "context": reply["context"]}
    assert post(server, "/v1/lookup", body | {"text": ""})["matches"] == [{"length": 0, "count": 0}]


def test_nodes_have_texts_and_counts_by_datastore(server: DraftServer) -> None:
    both = [{"name": "b"}, {"name": "a", "weight": 2}]
    body = {"text": "déj", "datastores": both, "texts": True, "by_datastore": True, "max_depth": 4, "max_nodes": 9}
    [tree] = post(server, "/v1/draft", body)["trees"]
    assert tree["texts"] == ["\ufffd", "à", " ", "v", "d"]
    assert tree["counts"] == [5, 5, 5, 3, 2]
    assert tree["datastores"] == {
        "b": {"match_count": 1, "counts": [1, 1, 1, 1, 0]},
        "a": {"match_count": 2, "counts": [2, 2, 2, 1, 1]},
    }


@pytest.mark.parametrize(("least", "message"), [(1, "before all counts"), (2, "while documents were counted")])
def test_counts_by_datastore_have_the_deadline_of_the_request(
    stores: dict[str, Datastore], least: int, message: str
) -> None:
    service = DraftService(stores, 1, min_count=least)
    expired = iter([False] * (least - 1) + [True])  # before the batch, or within it
    body = DraftBody(contexts=[[1]], datastores=[{"name": "a"}], by_datastore=True)
    context = stores["a"].encode("déj")
    tree = stores["a"].draft(context, max_nodes=4)
    with acting_as(OPERATOR), pytest.raises(DeadlineExceeded, match=message):
        describe_tree(service, body, context, tree, lambda: next(expired))


def test_occurrences_have_texts(server: DraftServer) -> None:
    body = {"text": "éj", "datastores": [{"name": "a"}, {"name": "b"}], "before": 9, "context": 4, "texts": True}
    found = post(server, "/v1/occurrences", body)["occurrences"]
    places = [(each["datastore"], each["id"].rpartition("#")[2], each["offset"]) for each in found]
    assert sorted(places) == [("a", "0", 1), ("a", "1", 1), ("b", "0", 1)]
    assert {tuple(each["texts"].values()) for each in found} == {("d", "éj", "à v"), ("d", "éj", "à d")}
    [place] = post(server, "/v1/occurrences", {"text": "<script", "datastore": "a", "texts": True})["occurrences"]
    assert place["texts"] == {"before": "", "match": "<script", "after": ">alert(1)</scrip"}


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/v1/draft", {"text": "x" * (limits.MAX_TEXT + 1)}, "text has 16385 characters; the limit is 16384"),
        ("/v1/draft", {"text": "\ud800"}, "body: a text has half a surrogate pair"),
        ("/v1/draft", {"contexts": [[1]] * 17, "texts": True}, "max_nodes add up to 1088; the limit with texts"),
        ("/v1/draft", {"contexts": [[1]] * 17, "by_datastore": True}, "or by_datastore is 1024; lower them or split"),
        ("/v1/occurrences", {}, "tokens: give either tokens or text"),
        ("/v1/occurrences", {"tokens": [1], "text": "a"}, "tokens: give either tokens or text"),
        ("/v1/occurrences", {"text": "a" * 65}, "a pattern of 65 tokens; it must have 1 to 64"),
        (
            "/v1/occurrences",
            {"tokens": [1], "limit": 1 << 70},
            "limit is 1180591620717411303424; it must be between 0 and 64",
        ),
        ("/v1/occurrences", {"tokens": [1], "before": -1}, "before is -1; it must be between 0 and 256"),
    ],
)
def test_limits(path: str, body: dict[str, Any], text: str, server: DraftServer) -> None:
    status, _, reply = ask(server, "POST", path, body | {"datastore": "a"})
    assert (status, reply["error"]["code"]) == (400, "INVALID_ARGUMENT")
    assert text in reply["error"]["message"]


def test_rare_text_stays_hidden(stores: dict[str, Datastore]) -> None:
    both = [{"name": "a"}, {"name": "b"}]
    with serving(stores, min_count=2) as server:
        body = {"text": "déj", "datastores": both, "texts": True, "by_datastore": True}
        [tree] = post(server, "/v1/draft", body)["trees"]
        assert "".join(tree["texts"]) == "\ufffdà vu"
        assert tree["datastores"]["b"] == {
            "match_count": 0,
            "counts": [0] * len(tree["tokens"]),
        }  # alone it has each text once
        found = post(server, "/v1/occurrences", {"text": "déj", "datastores": both, "texts": True})["occurrences"]
        assert sorted(each["texts"]["after"] for each in found) == ["à ", "à vu", "à vu"]
