"""Tests what the worker's page asks: traces of steps in answers, passages of datastores, and who may see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from suffolk.datastore.datastore import Datastore
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.drafter_entry import LoadContext
from suffolk.serving.decoding.drafters.hybrid.drafter import load_hybrid
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.prompt import encode_chat
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.worker.call import RemotePolicy
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.traces import TraceBudget
from tests.support.draft_server import connected, serving
from tests.support.drafters import alone
from tests.support.http_requests import ask
from tests.support.openai_server import events
from tests.support.stores import make_text_store
from tests.support.worker_server import working

CHAT, PASSAGES = "/v1/chat/completions", "/suffolk/passages"
USER = [{"role": "user", "content": "abc"}]
FIELDS: dict[str, Any] = {"messages": USER, "temperature": 0, "max_tokens": 40, "ignore_eos": True}
HOSTILE = "<img src=x onerror=alert(1)>.txt"


@pytest.fixture(scope="module")
def answer(target: Target) -> list[int]:
    prompt = encode_chat(target, [("user", "abc")])
    return alone(target, prompt, SamplingSettings(max_new_tokens=40, ignore_eos=True))


@pytest.fixture(scope="module")
def store(target: Target, answer: list[int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Datastore]:
    """Holds the answer, and a part of it that goes on differently."""
    tokenizer = target.tokenizer.backend_tokenizer
    documents = [answer, [*answer[:20], *tokenizer.encode("</script>").ids]]
    origins: Any = [("answers/one.txt", {"year": 2026}), (HOSTILE, {})]
    with make_text_store(tmp_path_factory.mktemp("stores") / "texts", tokenizer, documents, origins) as store:
        yield store


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The headers of callers by name, and "file": the access file."""
    file = tmp_path_factory.mktemp("access") / "access.toml"
    roles: dict[str, dict[str, Role]] = {
        "reader": {"default": Role.READ},
        "admin": {"default": Role.ADMIN},
        "stranger": {"acme": Role.ADMIN},
        "operator": {"*": Role.ADMIN},
    }
    return {"file": str(file)} | {name: f"Bearer {add_token(file, name, each)}" for name, each in roles.items()}


def shows(target: Target, store: Retriever, traces: bool = True, share_learning: bool = False, **more: Any) -> Any:
    hybrid = load_hybrid(LoadContext(257, retrievers=[store]), {})
    policy = RemotePolicy(traces=traces, share_learning=share_learning)
    return working(target, {"hybrid": hybrid}, policy=policy, datastores=[store], **more)


@pytest.fixture(scope="module")
def open_server(target: Target, store: Datastore) -> Iterator[WorkerServer]:
    with shows(target, store) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(target: Target, store: Datastore, access: dict[str, str]) -> Iterator[WorkerServer]:
    with shows(target, store, access=Path(access["file"])) as server:
        yield server


def steps_of(chunks: list[Any]) -> list[Any]:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return [step for choice in choices for step in choice.get("suffolk", {"steps": []})["steps"]]


def tokens_of(step: Any) -> list[int]:
    accepted = [node["token"] for node in step["nodes"] if node["accepted"]]
    return accepted + ([step["sampled"]["token"]] if step["sampled"] else [])


@pytest.mark.parametrize("stream", [True, False])
def test_the_steps_of_an_answer_tell_its_text_and_its_drafts(
    open_server: WorkerServer, answer: list[int], target: Target, stream: bool
) -> None:
    body = FIELDS | {"suffolk": {"trace": True}, "stream": stream}
    _, _, reply = ask(open_server, "POST", CHAT, body)
    chunks = events(reply) if stream else [reply]
    steps = steps_of(chunks)
    assert [token for step in steps for token in tokens_of(step)] == answer
    pieces = [piece for step in steps for piece in step["pieces"]]
    assert "".join(piece["text"] for piece in pieces) == target.tokenizer.decode(answer, skip_special_tokens=True)
    assert any("datastore" in piece["sources"] for piece in pieces)
    nodes = [node for step in steps for node in step["nodes"]]
    for node in nodes:
        assert node.keys() == {"token", "text", "parent", "probability", "sources", "verified", "accepted"}
        assert node["text"] == target.tokenizer.decode([node["token"]])
        assert 0 <= node["probability"] <= 1
        assert node["verified"] or not node["accepted"]
    assert any(node["accepted"] for node in nodes)
    assert all(step["seconds"]["forward"] > 0 for step in steps)


def test_answers_have_no_trace_unless_it_is_asked_for(open_server: WorkerServer) -> None:
    assert steps_of(events(ask(open_server, "POST", CHAT, FIELDS | {"stream": True})[2])) == []
    assert "suffolk" not in ask(open_server, "POST", CHAT, FIELDS)[2]["choices"][0]


def test_each_text_of_a_request_has_its_own_steps(open_server: WorkerServer) -> None:
    body = FIELDS | {"suffolk": {"trace": True}, "n": 2, "temperature": 1, "stream": True}
    chunks = events(ask(open_server, "POST", CHAT, body)[2])
    for index in (0, 1):
        own = [{"choices": [each for each in chunk["choices"] if each["index"] == index]} for chunk in chunks]
        assert sum(len(tokens_of(step)) for step in steps_of(own)) == 40


def test_a_trace_is_bounded_and_keeps_what_was_accepted(open_server: WorkerServer, answer: list[int]) -> None:
    engine = open_server.service.engine
    prompt, settings = (
        encode_chat(engine.target, [("user", "abc")]),
        SamplingSettings(max_new_tokens=40, ignore_eos=True),
    )
    found = list(engine.generate(prompt, settings, "hybrid", options=DraftOptions(trace=True)))
    traces = [trace for step in found for trace in step.traces]
    proposed, accepted = sum(len(each.tree) for each in traces), sum(len(each.accepted) for each in traces)
    budget = TraceBudget(str, most_nodes=10)
    steps = [budget.json(trace) for trace in traces]
    assert [token for step in steps for token in tokens_of(step)] == answer
    shown = sum(len(step["nodes"]) for step in steps)
    assert shown <= 10 + accepted < proposed
    assert shown + sum(step["nodes_left_out"] for step in steps) == proposed


def test_passages_name_the_documents_of_a_text(open_server: WorkerServer, answer: list[int]) -> None:
    status, _, reply = ask(open_server, "POST", PASSAGES, {"tokens": [300, *answer[10:20]], "following": 4})
    assert status == 200, reply
    [found] = reply["datastores"]
    assert (found["datastore"], found["tokens"], found["count"]) == ("texts", 10, 2)
    by_id = {each["id"]: each for each in found["passages"]}
    assert by_id.keys() == {"answers/one.txt", HOSTILE}
    assert by_id[HOSTILE]["following"] == "</sc"
    assert by_id["answers/one.txt"]["metadata"] == {"year": 2026}
    assert by_id["answers/one.txt"]["offset"] == 10
    _, _, reply = ask(open_server, "POST", PASSAGES, {"tokens": [256, 256]})
    assert reply["datastores"][0] == {"datastore": "texts", "tokens": 0, "text": "", "count": 0, "passages": []}


@pytest.mark.parametrize("shown", [True, False])
def test_a_draft_service_names_documents_if_its_operator_lets_it(
    target: Target, store: Datastore, answer: list[int], shown: bool
) -> None:
    with (
        serving({"texts": store}, shows_occurrences=shown) as service,
        connected(service, "texts") as remote,
        shows(target, remote) as server,
    ):
        [found] = ask(server, "POST", PASSAGES, {"tokens": answer[10:20]})[2]["datastores"]
        if shown:
            assert {each["id"] for each in found["passages"]} == {"answers/one.txt", HOSTILE}
            assert {each["datastore"] for each in found["passages"]} == {"texts"}
        else:
            assert found.keys() == {"datastore", "unknown"}
            assert "occurrences" in found["unknown"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"tokens": []}, "tokens is []; it must be an array with entries"),
        ({"tokens": [1 << 40]}, "tokens[0] is 1099511627776"),
        ({"tokens": [-1]}, "tokens[0] is -1"),
        ({"tokens": [1], "limit": 21}, "limit is 21"),
        ({"tokens": [1], "datastores": ["secret"]}, "datastore 'secret' is not loaded; loaded: texts"),
        ({"tokens": [1], "text": ""}, "text: unknown key"),
    ],
)
def test_wrong_passages_are_rejected(open_server: WorkerServer, body: Any, text: str) -> None:
    status, _, reply = ask(open_server, "POST", PASSAGES, body)
    assert status == 400
    assert text in reply["error"]["message"]


def test_only_admins_of_the_datastores_see_drafts_and_passages(guarded: WorkerServer, access: dict[str, str]) -> None:
    traced = FIELDS | {"suffolk": {"trace": True}}
    for name, expected in (("reader", 403), ("admin", 200)):
        headers = {"Authorization": access[name]}
        status, _, reply = ask(guarded, "POST", CHAT, traced, headers)
        assert status == expected
        assert ("lacks" in str(reply) or "may not see the sources of texts" in str(reply)) == (expected == 403)
        assert ask(guarded, "POST", PASSAGES, {"tokens": [1, 2]}, headers)[0] == expected
        info = ask(guarded, "GET", "/suffolk/info", headers=headers)[2]
        assert info["datastores"] == [{"name": "texts", "sources": expected == 200}]
        assert info["sources"] == (expected == 200)
    error = ask(guarded, "GET", "/nothing", headers={"Authorization": access["admin"]})[2]["error"]["message"]
    assert ("/v1/chat/completions" in error, "playground" in error) == (True, False)
    headers = {"Authorization": access["stranger"]}  # an admin elsewhere: the datastore does not exist for it
    assert ask(guarded, "POST", PASSAGES, {"tokens": [1, 2]}, headers)[2] == {"datastores": []}
    status, _, reply = ask(guarded, "POST", PASSAGES, {"tokens": [1], "datastores": ["texts"]}, headers)
    assert (status, "datastore 'texts' is not loaded; loaded: none" in str(reply)) == (400, True)
    assert ask(guarded, "GET", "/suffolk/info", headers=headers)[2]["datastores"] == []
    steps = steps_of([ask(guarded, "POST", CHAT, traced, headers)[2]])
    assert not any("datastore" in node["sources"] for step in steps for node in step["nodes"])
    for method, path in (("GET", "/suffolk/info"), ("POST", PASSAGES)):
        assert ask(guarded, method, path, {"tokens": [1]} if method == "POST" else None)[0] == 401


def test_shared_learning_needs_an_admin_of_all_tenants(
    target: Target, store: Datastore, access: dict[str, str]
) -> None:
    """Drafters that learn from all tenants together may draft the text of another tenant."""
    with shows(target, store, share_learning=True, access=Path(access["file"])) as server:
        for name, expected in (("admin", 403), ("operator", 200)):
            headers = {"Authorization": access[name]}
            assert ask(server, "POST", CHAT, FIELDS | {"suffolk": {"trace": True}}, headers)[0] == expected
            assert ask(server, "GET", "/suffolk/info", headers=headers)[2]["sources"] == (expected == 200)


def test_the_page_needs_no_identity_and_runs_no_foreign_script(guarded: WorkerServer) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/playground/tree.js", "text/javascript"),
        ("/playground/style.css", "text/css"),
    ):
        status, headers, body = ask(guarded, "GET", path)
        assert (status, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in body
    assert ask(guarded, "GET", "/playground/worker.html")[0] == 401  # only / serves it
    assert ask(guarded, "GET", "/playground/../app.py")[0] == 401


def test_a_worker_without_the_page_shows_no_drafts(target: Target, store: Datastore) -> None:
    with shows(target, store, traces=False) as server:
        for path in ("/", "/playground/tree.js", "/suffolk/info"):
            assert ask(server, "GET", path)[0] == 404
        assert ask(server, "POST", PASSAGES, {"tokens": [1]})[0] == 404
        status, _, reply = ask(server, "POST", CHAT, FIELDS | {"suffolk": {"trace": True}})
        assert (status, "this worker shows no draft trees" in reply["error"]["message"]) == (403, True)
