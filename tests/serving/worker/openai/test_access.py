"""Tests keys, CORS, TLS, limits and wrong requests of OpenAI's API."""

from __future__ import annotations

import gzip
import http.client
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.worker import limits
from suffolk.serving.worker.openai.origins import check_origins
from suffolk.serving.worker.server import WorkerServer
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.http_requests import ask
from tests.support.waiting import HANG
from tests.support.worker_server import working

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "abc"}]
CLIENT_HEADERS = (
    "authorization,content-type,http-referer,openai-organization,openai-project,traceparent,x-stainless-arch,"
    "x-stainless-helper-method,x-stainless-lang,x-stainless-os,x-stainless-package-version,x-stainless-retry-count,"
    "x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout,x-title"
)
"""The headers that a browser asks for, for pages with the official JavaScript client and with clients of routers."""


def test_a_token_is_needed_where_an_access_file_is_set(target: Target, tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    readers = [add_token(file, name, {"default": Role.READ}) for name in ("alice", "bob")]
    operator = add_token(file, "prometheus", {"*": Role.READ})
    with working(target, access=file) as server:
        for path in ("/health", "/ready", "/livez", "/readyz", "/healthz"):
            assert ask(server, "GET", path)[0] == 200
        for token in (*readers, operator):
            for path in ("/v1/models", "/version"):
                assert ask(server, "GET", path, headers={"Authorization": f"Bearer {token}"})[0] == 200
        assert ask(server, "GET", "/metrics", headers={"Authorization": f"Bearer {operator}"})[0] == 200
        status, _, reply = ask(server, "GET", "/metrics", headers={"Authorization": f"Bearer {readers[0]}"})
        assert (status, reply["error"]["type"]) == (403, "permission_error")
        wrong = (readers[0][:-1], "", "alice", f"Bearer {readers[0]}x", f"Basic {readers[0]}", "Bearer \xff")
        for headers in ({}, *({"Authorization": each} for each in wrong)):
            for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("POST", "/tokenize"), ("GET", "/nothing")):
                status, found, reply = ask(server, method, path, {"messages": USER}, headers)
                assert (status, reply["error"]["code"]) == (401, "invalid_api_key")
                assert (reply["error"]["type"], found["www-authenticate"]) == ("authentication_error", "Bearer")
        assert server.service.engine.stats()["requests"] == 0
        counted = (
            'suffolk_requests_total{code="UNAUTHENTICATED",method="ChatCompletions",tenant="",transport="http"} 7.0'
        )
        assert counted in server.service.metrics.exposition().decode()


def test_origins_have_the_form_that_browsers_send() -> None:
    origins = ("*", "https://a.example", "http://localhost:8080", "http://[::1]:80", "chrome-extension://abc")
    assert check_origins(origins) == origins
    for wrong in ('["https://a.example"]', "a.example", "https://a.example/", "https://A.example", "null", ""):
        with pytest.raises(InvalidArgument, match=r"cors_origin\[1\] is .*; write SCHEME://HOST"):
            check_origins(["*", wrong])


def test_web_pages_of_allowed_origins_may_read_answers(target: Target, tmp_path: Path) -> None:
    headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    headers |= {"Access-Control-Request-Headers": CLIENT_HEADERS, "Access-Control-Request-Private-Network": "true"}
    token = add_token(tmp_path / "access.toml", "page", {"default": Role.READ})
    with working(target, access=tmp_path / "access.toml", cors_origins=("https://a.example",)) as server:
        status, found, _ = ask(server, "OPTIONS", CHAT, headers=headers)
        assert (status, found["access-control-allow-origin"]) == (200, "https://a.example")
        assert set(CLIENT_HEADERS.split(",")) <= set(found["access-control-allow-headers"].split(","))
        assert found["access-control-allow-private-network"] == "true"
        assert ask(server, "OPTIONS", CHAT, headers=headers | {"Origin": "https://b.example"})[0] == 400
        key = {"Authorization": f"Bearer {token}"}
        found = ask(server, "GET", "/v1/models", headers={"Origin": "https://a.example"} | key)[1]
        assert found["access-control-allow-origin"] == "https://a.example"
        assert found["access-control-expose-headers"] == "x-request-id, retry-after"
        found = ask(server, "GET", "/v1/models", headers={"Origin": "https://b.example"} | key)[1]
        assert "access-control-allow-origin" not in found
    with working(target) as server:
        assert "access-control-allow-origin" not in ask(server, "OPTIONS", CHAT, headers=headers)[1]
        assert ask(server, "POST", CHAT, {"messages": USER}, {"Content-Type": "text/plain"})[0] == 415


@needs_openssl
def test_tls(target: Target, tmp_path: Path) -> None:
    folder = make_certificates(tmp_path)
    with working(target, tls=TlsFiles(f"{folder}/server.pem", f"{folder}/server.key")) as server:
        assert f"https {server.http}" in server.announcement()
        context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
        with urllib.request.urlopen(f"https://{server.http}/v1/models", timeout=HANG, context=context) as reply:
            assert reply.status == 200
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(server, "GET", "/v1/models")
    mutual = TlsFiles(f"{folder}/server.pem", f"{folder}/server.key", f"{folder}/ca.pem")
    with working(target, tls=mutual) as server:
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            urllib.request.urlopen(f"https://{server.http}/v1/models", timeout=HANG, context=context)
        context.load_cert_chain(f"{folder}/client.pem", f"{folder}/client.key")
        with urllib.request.urlopen(f"https://{server.http}/v1/models", timeout=HANG, context=context) as reply:
            assert reply.status == 200
    access = tmp_path / "access.toml"
    for subject, status in (("client", 200), ("another", 401)):
        access.write_text(f'[[subject]]\nname = "{subject}"\nroles = {{ default = "read" }}\n')
        with working(target, tls=mutual, access=access) as server:
            try:
                reply = urllib.request.urlopen(f"https://{server.http}/v1/models", timeout=HANG, context=context)
            except urllib.error.HTTPError as error:
                reply = error
            assert reply.status == status


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": USER, "max_tokens": 3, **fields}


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        (b"{", None, "body: not JSON"),
        (b"\xff", None, "body: not JSON"),
        (b"[" * 60_000, None, "body: not JSON"),
        (b"[" * 100_000, None, "body has 100000 brackets and braces; the limit is 65536; split the request"),
        (
            chat(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}] * 1025}]),
            "messages[0].content",
            "at most 1024",
        ),
        ([], None, "body is []; it must be an object"),
        ({}, "messages", "messages: field required"),
        (chat(messages=[]), "messages", "the number of messages is 0; it must be between 1 and 1024"),
        (chat(messages=USER * 1026), "messages", "messages has 1026 entries; at most 1024 are allowed"),
        (chat(messages=[{"content": "x"}]), "messages[0].role", "messages[0].role: field required"),
        (chat(messages=[{"role": "user"}]), "messages[0].content", "messages[0].content: field required in a message"),
        (
            chat(messages=[{"role": "r" * 129, "content": "x"}]),
            "messages[0].role",
            "messages[0].role has 129 characters",
        ),
        (chat(messages=[{"role": "user", "content": "x" * (1 << 20) + "y"}]), "messages", "1048577 characters"),
        (chat(messages=[{"role": "user", "content": 3}]), "messages[0].content", "messages[0].content is 3"),
        (
            chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
            "messages[0].content[0].type",
            "is 'image_url'; the model takes text alone",
        ),
        (
            chat(messages=[{"role": "assistant", "tool_calls": 5}]),
            "messages[0].tool_calls",
            "messages[0].tool_calls is 5; it must be an array",
        ),
        (chat(messages=[{"role": "robot", "content": "x"}]), None, "the chat template of model tiny rejects"),
        (
            chat(messages=[{"role": "user", "content": "x" * 5000}]),
            "messages",
            "maximum context length is 4032 tokens, and the prompt has 50",
        ),
        (chat(max_tokens=0), "max_tokens", "max_tokens is 0; it must be at least 1"),
        (chat(max_tokens=4096), "max_tokens", "max_tokens is 4096, but this model's maximum context length is"),
        (chat(max_tokens=1 << 30), "max_tokens", "max_tokens is 1073741824; it must be between 1 and 1048576"),
        (chat(max_completion_tokens=4096), "max_completion_tokens", "max_completion_tokens is 4096, but this model's"),
        (
            chat(max_completion_tokens=1 << 30),
            "max_completion_tokens",
            "max_completion_tokens is 1073741824; it must be",
        ),
        (chat(max_completion_tokens="9"), "max_completion_tokens", "is '9'; it must be a whole number"),
        (chat(temperature=-1), "temperature", "temperature is -1.0; it must be between 0 (greedy) and 100"),
        (chat(temperature="hot"), "temperature", "temperature is 'hot'; it must be a number"),
        (chat(top_p=-0.1), "top_p", "top_p is -0.1; it must be above 0"),
        (chat(top_k=-2), "top_k", "top_k is -2"),
        (chat(n=0), "n", "n is 0; it must be at least 1"),
        (chat(n=129), "n", "n is 129; it must be at most 128"),
        (chat(n=True), "n", "n is true; it must be a whole number"),
        (chat(stop=["x"] * 18), "stop", "stop has 18 entries; at most 16 are allowed"),
        (chat(stop="x" * 257), "stop[0]", "stop[0] has 257 characters; the limit is 256"),
        (chat(stop=""), "stop", "stop[0] is ''"),
        (chat(seed=1 << 63), "seed", f"seed is {1 << 63}; it must be below {1 << 63}"),
        (chat(presence_penalty=2.5), "presence_penalty", "presence_penalty is 2.5; it must be between -2 and 2"),
        (chat(logit_bias={"a": 1}), "logit_bias", "logit_bias has the key 'a'; its keys must be token ids"),
        (chat(logit_bias={"9" * 5000: 1}), "logit_bias", f"logit_bias has the key '{'9' * 20}'; its keys must be"),
        (chat(logit_bias={"1": 101}), "logit_bias", "logit_bias is 101 for token 1; it must be between -100 and 100"),
        (chat(logit_bias={"999": 1}), "logit_bias", "logit_bias has token id 999; the vocabulary has 257 ids"),
        (chat(logprobs=3), "logprobs", "logprobs is 3; it must be true or false"),
        (chat(top_logprobs=3), "top_logprobs", "top_logprobs: it needs logprobs: true"),
        (chat(logprobs=True, top_logprobs=21), "top_logprobs", "top_logprobs is 21; it must be at most"),
        (chat(response_format={"type": "xml"}), "response_format.type", "it must be text, json_object or json_schema"),
        (
            chat(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}),
            "response_format.json_schema.schema",
            "response_format.json_schema.schema is refused: Invalid type: objekt",
        ),
        (chat(response_format={"type": "json_schema"}), "response_format.json_schema.schema", "give the schema"),
        (chat(prediction={"type": "content"}), "prediction.content", "prediction.content: field required"),
        (chat(suffolk={"drafter": "eagle"}), "suffolk.drafter", "drafter 'eagle' is not loaded; loaded: prompt-lookup"),
        (chat(suffolk={"max_nodes": 65}), "suffolk.max_nodes", "max_nodes is 65; it must be between 1 and 64"),
        ({"messages": USER, "suffolk": {"max_nodes": 1 << 20}}, "suffolk.max_nodes", "max_nodes is 1048576"),
        (
            {"messages": USER, "suffolk": {"max_nodes": 0}},
            "suffolk.max_nodes",
            "max_nodes is 0; it must be between 1 and 64",
        ),
        (chat(suffolk={"datastores": ["wiki"]}), "suffolk.datastores", "datastore 'wiki' is not loaded"),
        (chat(suffolk={"remember": "no"}), "suffolk.remember", "suffolk.remember is 'no'"),
        (chat(suffolk={"remeber": False}), "suffolk.remeber", "suffolk.remeber: unknown key"),
        (
            chat(stream=True, stream_options={"include_usage": 1}),
            "stream_options.include_usage",
            "it must be true or false",
        ),
    ],
)
def test_wrong_values_are_rejected(body: Any, param: str | None, text: str, server: WorkerServer) -> None:
    status, _, reply = ask(server, "POST", CHAT, body)
    error = reply["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param), error
    assert text in error["message"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert server.in_flight() == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [["a"]]}, None),
        ({"prompt": [257]}, "prompt"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "best_of": 2}, "best_of"),
        ({"prompt": "x", "echo": True, "logprobs": 21}, "logprobs"),
        ({"prompt": "x", "max_tokens": -2}, "max_tokens"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [[1], [1, 1 << 64]]}, "prompt[1][1]"),
        ({"prompt": "x", "bad_words": ["x" * 65]}, "bad_words"),
        ({"prompt": ["x"] * 65, "n": 2}, "prompt"),
        ({"prompt": ["x"] * 129}, "prompt"),
    ],
)
def test_wrong_prompts_are_rejected(body: Any, param: str | None, server: WorkerServer) -> None:
    status, _, reply = ask(server, "POST", "/v1/completions", body)
    assert (status, reply["error"]["type"]) == (400, "invalid_request_error")
    assert param in (None, reply["error"]["param"])


def test_the_fields_of_another_api_are_named_if_one_is_missing(server: WorkerServer) -> None:
    error = ask(server, "POST", CHAT, {"contents": [{"role": "user", "parts": [{"text": "a"}]}], "model": "tiny"})[2]
    assert error["error"]["message"] == "contents: not supported here; use messages"


def test_another_model_is_not_found(server: WorkerServer) -> None:
    status, _, reply = ask(server, "POST", CHAT, chat(model="gpt-9"))
    error = reply["error"]
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert error["type"] == "invalid_request_error"


def test_a_model_may_have_several_names(target: Target) -> None:
    with working(target, names=("big", "gpt-4o")) as server:
        assert server.subject() == "big"
        assert [each["id"] for each in ask(server, "GET", "/v1/models")[2]["data"]] == ["big", "gpt-4o"]
        for name in ("big", "gpt-4o"):
            assert ask(server, "GET", f"/v1/models/{name}")[2]["id"] == name
            assert ask(server, "POST", CHAT, chat(model=name))[2]["model"] == name
        assert ask(server, "POST", CHAT, chat())[2]["model"] == "big"
        assert "serves 'big', 'gpt-4o'" in ask(server, "POST", CHAT, chat(model="tiny"))[2]["error"]["message"]


def test_paths_that_are_not_served_name_those_that_are(server: WorkerServer) -> None:
    for method, path in (("GET", "/docs"), ("POST", "/v1/embeddings"), ("GET", CHAT), ("GET", "/v1/files/1")):
        status, _, reply = ask(server, method, path)
        assert (status, reply["error"]["type"]) == (405 if path == CHAT else 404, "invalid_request_error")
        assert f"{method} {path} is not served here; the paths are " in reply["error"]["message"]
        assert "POST /v1/chat/completions" in reply["error"]["message"]
        assert "GET /v1/models/NAME, " in reply["error"]["message"]


def test_a_slash_at_the_end_of_a_path_is_ignored(server: WorkerServer) -> None:
    """Regression: the answer was an empty redirect to an absolute URL, without the prefix of a proxy."""
    for path in ("/v1/models", "/v1/models/" + server.subject(), "/version"):
        assert ask(server, "GET", f"{path}/")[2] == ask(server, "GET", path)[2]
    assert ask(server, "POST", f"{CHAT}/", chat())[0] == 200
    assert ask(server, "POST", f"{CHAT}/x/", chat())[0] == 404
    for path in ("//v1/models", "/v1//models", "///v1//models//"):
        assert ask(server, "GET", path)[2] == ask(server, "GET", "/v1/models")[2]


def test_a_target_may_be_a_whole_url(server: WorkerServer) -> None:
    """As of a client that takes the worker for its proxy."""
    assert ask(server, "GET", "http://127.0.0.1:8000/v1/models")[2] == ask(server, "GET", "/v1/models")[2]
    assert ask(server, "GET", "http://127.0.0.1")[0] == ask(server, "GET", "/")[0]


@pytest.mark.parametrize("kind", ["", "application/x-www-form-urlencoded"])
def test_curl_needs_no_header(server: WorkerServer, kind: str) -> None:
    """Regression: ``curl -d`` was refused, unlike by a draft service. Web pages send JSON, which needs CORS permission."""
    assert ask(server, "POST", CHAT, chat(), {"Content-Type": kind})[0] == 200
    assert server.http is not None
    page = {"Content-Type": kind, "Origin": f"http://127.0.0.1:{server.http.port}"}
    status, _, reply = ask(server, "POST", CHAT, chat(), page)
    assert (status, "send JSON with 'Content-Type: application/json'" in reply["error"]["message"]) == (415, True)


def test_bodies_that_cannot_be_read(server: WorkerServer) -> None:
    packed = gzip.compress(json.dumps(chat()).encode())
    status, _, reply = ask(server, "POST", CHAT, packed, {"Content-Encoding": "gzip"})
    assert (status, "the content encoding is 'gzip'; send the body as it is" in reply["error"]["message"]) == (
        415,
        True,
    )
    for encoding in ("", "identity", "Identity"):
        assert ask(server, "POST", CHAT, chat(), {"Content-Encoding": encoding})[0] == 200
    for charset in ("punycode", "zip"):
        status, _, reply = ask(server, "POST", CHAT, chat(), {"Content-Type": f"application/json; charset={charset}"})
        named = f"the character set is '{charset}'; send the body in UTF-8" in reply["error"]["message"]
        assert (status, named) == (415, True)
    half = b'{"messages": [{"role": "user", "content": "a \\ud83d b"}]}'
    status, _, reply = ask(server, "POST", CHAT, half)
    assert (status, "half a surrogate pair" in reply["error"]["message"]) == (400, True)


@pytest.mark.parametrize("charset", ["utf-16", "UTF-16LE", '"iso-8859-1"', "UTF8", "us-ascii"])
def test_bodies_in_other_character_sets(server: WorkerServer, charset: str) -> None:
    """As tools on Windows, and older clients in Java, send them."""
    body = {"prompt": "caf\u00e9"}
    data = json.dumps(body, ensure_ascii=charset == "us-ascii").encode(charset.strip('"'))
    kind = {"Content-Type": f"application/json; charset={charset}"}
    assert ask(server, "POST", "/tokenize", data, kind)[2] == ask(server, "POST", "/tokenize", body)[2]
    status, _, reply = ask(server, "POST", "/tokenize", b"\xff", {"Content-Type": "application/json; charset=UTF-16"})
    assert (status, "it is not in utf-16, its character set" in reply["error"]["message"]) == (400, True)


def test_a_prompt_that_fills_the_slot_has_a_code_of_its_own(server: WorkerServer) -> None:
    most = ask(server, "GET", "/v1/models/tiny")[2]["max_model_len"]
    long = [[{"role": "user", "content": "x" * size}] for size in (5_000, 500_000)]
    for body, param in ((chat(max_tokens=4090), "max_tokens"), *((chat(messages=each), "messages") for each in long)):
        error = ask(server, "POST", CHAT, body)[2]["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
        assert f"maximum context length is {most} tokens" in error["message"]
    full = {"prompt": [5] * most, "max_tokens": 0, "echo": True}
    message = ask(server, "POST", "/v1/completions", full)[2]["error"]["message"]
    assert f"the prompt has {most}; the answer needs room too: shorten it to {most - 1} or less" in message


def test_prompt_and_answer_may_have_as_many_tokens_as_the_model_states(server: WorkerServer) -> None:
    most = ask(server, "GET", "/v1/models/tiny")[2]["max_model_len"]
    prompt = ask(server, "POST", "/tokenize", {"messages": USER})[2]["count"]
    reply = ask(server, "POST", CHAT, chat(max_tokens=most - prompt + 1))[2]
    assert f"there is room for {most - prompt};" in reply["error"]["message"]


def test_large_bodies_are_rejected_unread(server: WorkerServer) -> None:
    status, _, reply = ask(server, "POST", CHAT, b" " * (limits.MAX_REQUEST_BYTES + 1))
    assert (status, reply["error"]["type"]) == (413, "invalid_request_error")


def test_a_fault_of_the_worker_is_an_error_500(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with working(target) as server:
        monkeypatch.setattr(server.service, "start", lambda call: 1 // 0)
        status, _, reply = ask(server, "POST", CHAT, chat())
        assert (status, reply["error"]["type"]) == (500, "server_error")
        assert "Traceback" not in reply["error"]["message"]
        assert server.in_flight() == 0
