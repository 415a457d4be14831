"""Tests what happens to fields of other servers, misspelled fields inside objects, and values of a wrong type."""

from __future__ import annotations

from typing import Any

import pytest

from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker.openai.bodies import ChatBody, CompletionBody
from suffolk.serving.worker.openai.known_fields import check_extra, check_names
from suffolk.serving.worker.openai.other_fields import IGNORED, OTHER
from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
CHATS: dict[str, Any] = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 3}
TEXTS: dict[str, Any] = {"prompt": "abc", "max_tokens": 3}
SCHEMA = {"type": "object", "properties": {}}


def function(**fields: Any) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": {"name": "f", **fields}}]}


def test_many_unknown_fields_are_refused() -> None:
    many = {f"x{number}": 1 for number in range(101)}
    for check in (lambda: check_extra("", many, {}), lambda: check_names("tool.", many, ["name"])):
        with pytest.raises(InvalidField, match="101 unknown fields; the limit is 100"):
            check()


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (CHAT, {"input": "hi"}, "input: not supported here; use messages, or /v1/responses"),
        (CHAT, {"prompt": "hi"}, "prompt: not supported here; use messages, or /v1/completions"),
        (TEXT, {"messages": [{"role": "user"}]}, "messages: not supported here; use /v1/chat/completions"),
        ("/tokenize", {"text": "a"}, "text: not supported here; use prompt"),
        ("/tokenize", {"input": "a"}, "input: not supported here; use prompt"),
        (CHAT, {"temperature": 1}, "messages: field required; the body has temperature"),
    ],
)
def test_fields_of_another_path_are_named_before_missing_ones(
    server: WorkerServer, path: str, body: dict[str, Any], text: str
) -> None:
    status, _, answer = ask(server, "POST", path, body)
    assert status == 400
    assert text in answer["error"]["message"]


def test_the_tables_agree() -> None:
    assert not IGNORED & set(OTHER)


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        # fields of other servers that would change the answer
        ({"no_stop_trim": True}, "no_stop_trim", "use include_stop_str_in_output"),
        ({"truncation_side": "right"}, "truncation_side", "leave it out"),
        ({"custom_logit_processor": "x"}, "custom_logit_processor", "leave it out"),
        ({"nvext": {"guided_json": SCHEMA}}, "nvext", "use its fields as fields of the request"),
        ({"prompt_truncate_len": 100}, "prompt_truncate_len", "use truncate_prompt_tokens"),
        ({"return_hidden_states": True}, "return_hidden_states", "leave it out"),
        ({"suppress_tokens": [5]}, "suppress_tokens", "use logit_bias"),
        # another style of a name
        ({"topP": 0.1}, "topP", "did you mean top_p?"),
        ({"top-k": 1}, "top-k", "did you mean top_k?"),
        ({"minP": 1}, "minP", "did you mean min_p?"),
        # inside objects
        (function(paramters=SCHEMA), "tools[0].function.paramters", "did you mean parameters?"),
        (function(input_schema=SCHEMA), "tools[0].function.input_schema", "did you mean parameters?"),
        (function(inputSchema=SCHEMA), "tools[0].function.inputSchema", "did you mean parameters?"),
        (function(strict="yes"), "tools[0].function.strict", "is 'yes'; it must be true or false"),
        ({"functions": [{"name": "f", "Parameters": SCHEMA}]}, "functions[0].Parameters", "did you mean parameters?"),
        ({"response_format": {"typ": "json_object"}}, "response_format.typ", "did you mean type?"),
        ({"tools": [{"typ": "function", "function": {"name": "f"}}]}, "tools[0].typ", "did you mean type?"),
        (function() | {"tool_choice": {"typ": "function"}}, "tool_choice.typ", "did you mean type?"),
        (function() | {"tool_choice": {"function": {"nme": "f"}}}, "tool_choice.function.nme", "did you mean name?"),
        # a path as a name
        ({"suffolk.drafter": "none"}, "suffolk.drafter", 'give {"suffolk": {"drafter": ...}}'),
        ({"stream_options.include_usage": True}, "stream_options.include_usage", 'give {"stream_options": {"incl'),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strickt": True}}},
            "response_format.json_schema.strickt",
            "did you mean strict?",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": 1}}},
            "response_format.json_schema.strict",
            "is 1; it must be true or false",
        ),
        # a schema that would have no effect
        (
            {"response_format": {"type": "json_object", "json_schema": {"schema": SCHEMA}}},
            "response_format.json_schema",
            "needs the type json_schema, and the type is json_object",
        ),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema", "the type is text"),
        ({"messages": [{"role": "assistant", "toolCalls": []}]}, "messages[0].toolCalls", "did you mean tool_calls?"),
        ({"messages": [{"role": "assistant", "tool_call": {}}]}, "messages[0].tool_call", "did you mean tool_calls?"),
        (
            {"messages": [{"role": "assistant", "content": "a", "partial": True}]},
            "messages[0].partial",
            "continue_final",
        ),
        # objects that may have no other keys
        (
            {"structured_outputs": {"regexp": "a"}},
            "structured_outputs.regexp",
            "unknown key; the keys are json, regex,",
        ),
        ({"structured_outputs": {"structural_tag": "a"}}, "structured_outputs.structural_tag", "unknown key"),
        ({"suffolk": {"remembr": False}}, "suffolk.remembr", "unknown key; the keys are drafter, max_nodes,"),
        ({"suffolk": {"group": ""}}, "suffolk.group", "group has 0 characters"),
        # values that may have several types
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content",
            "is 5; it must be a string or an array",
        ),
        ({"tool_choice": 5}, "tool_choice", "is 5; it must be a string or an object"),
    ],
)
def test_what_would_be_dropped_is_refused(server: WorkerServer, fields: dict[str, Any], param: str, text: str) -> None:
    status, _, reply = ask(server, "POST", CHAT, CHATS | fields)
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert text in reply["error"]["message"]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (["a", None], "prompt[1] is null; it must be a string"),
        ([[1], "a"], "prompt[1] is 'a'; it must be an array"),
        ([[1], [2, "a"]], "prompt[1][1] is 'a'; it must be a whole number"),
        ([True], "prompt[0] is true; it must be a whole number or a string or an array"),
        ([-1], "prompt[0] is -1; it must be at least 0"),
    ],
)
def test_the_first_wrong_item_of_a_list_is_named(server: WorkerServer, prompt: Any, text: str) -> None:
    """Regression: the first item was named, although the list is wrong further on."""
    error = ask(server, "POST", TEXT, TEXTS | {"prompt": prompt})[2]["error"]
    assert error["message"] == text


@pytest.mark.parametrize(
    "fields",
    [
        {"session_id": "a", "rid": "b", "ec_transfer_params": {}, "bootstrap_port": 5, "generation_prompt": "c"},
        {
            "truncation_side": "left",
            "no_stop_trim": False,
            "reasoning_budget_tokens": -1,
            "return_hidden_states": False,
        },
        {"model": ""},
        {"structured_outputs": {"regex": "a", "json": None, "disable_fallback": False, "structural_tag": None}},
        {"tools": [{"function": {"name": "f"}}], "tool_choice": {"function": {"name": "f"}}},
        function(name="f" * 128, returns={"type": "string"}, parameters=SCHEMA, parameter="x"),
        {"messages": [{"role": "user", "content": "a", "context": {}, "timestamp": 5}]},
    ],
)
def test_what_asks_for_nothing_is_accepted(server: WorkerServer, fields: dict[str, Any]) -> None:
    status, _, reply = ask(server, "POST", CHAT, CHATS | fields)
    assert status == 200, reply


def test_a_tiny_temperature_is_greedy(server: WorkerServer) -> None:
    """Regression: refused, though LangChain and Ragas send 1e-8 for it."""
    replies = [ask(server, "POST", TEXT, TEXTS | {"temperature": value})[2] for value in (0, 1e-8)]
    assert replies[0]["choices"] == replies[1]["choices"]


def test_a_schema_may_be_a_text_as_in_sglang(server: WorkerServer) -> None:
    reply = ask(server, "POST", TEXT, TEXTS | {"max_tokens": 9, "json_schema": '{"const": "a"}'})[2]
    assert reply["choices"][0]["text"].strip().startswith('"a')


@pytest.mark.parametrize("kind", [ChatBody, CompletionBody])
def test_no_field_is_taken_for_a_misspelled_one(kind: type[ChatBody | CompletionBody]) -> None:
    """Fields of clients that have no meaning here, and whose names are near others."""
    names = ("chat_id", "provider", "usage", "ttl", "keep_alive", "verbose", "timeout", "details", "custom_params")
    check_extra("", dict.fromkeys(names, "a"), dict.fromkeys(kind.model_fields))


def test_a_name_near_one_that_is_given_is_no_mistake() -> None:
    check_names("", {"schema": 1, "schemas": 2}, ("schema",))
    with pytest.raises(InvalidField, match=r"^a\.schemas: unknown field; did you mean schema\?$"):
        check_names("a.", {"schemas": 2}, ("schema",))


def test_a_field_that_the_request_has_is_no_field_that_the_worker_lacks() -> None:
    """``logprobs`` of a response is refused, and ``top_logprobs``, which is meant, acts there."""
    with pytest.raises(InvalidField, match=r"logprobs: unknown field; did you mean top_logprobs\?$"):
        check_extra("", {"logprobs": True}, {"top_logprobs": None})
