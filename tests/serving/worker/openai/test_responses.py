"""Tests /v1/responses with OpenAI's client, and with the requests of other clients."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel, TypeAdapter

from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.openai.responses_body import ResponsesBody, chat_of
from suffolk.serving.worker.server import WorkerServer
from tests.serving.worker.openai.test_tools import PARAMETERS, TEMPLATE
from tests.support.grammars import ending_target
from tests.support.http_requests import ask

PATH = "/v1/responses"
ASKED: dict[str, Any] = {"model": "tiny", "input": "Is it cold?", "max_output_tokens": 30, "temperature": 0}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Is it cold?"}],
    "max_tokens": 30,
    "temperature": 0,
}
WEATHER = {"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}
NOW = {"type": "function", "name": "now"}
PART = {"type": "input_text", "text": "What is this?"}


@pytest.fixture(scope="module")
def target() -> Target:
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE
    return target


def test_the_text_is_that_of_a_chat(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(**CHAT)
    found = client.responses.create(**ASKED)
    assert found.output_text == chat.choices[0].message.content
    assert (found.status, found.incomplete_details and found.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert found.usage is not None
    assert chat.usage is not None
    assert (found.usage.input_tokens, found.usage.output_tokens) == (chat.usage.prompt_tokens, 30)
    stopped = client.responses.create(
        **ASKED, extra_body={"stop": found.output_text[3], "suffolk": {"drafter": "none"}}
    )
    text = found.output_text
    assert (stopped.status, stopped.output_text) == ("completed", text[: text.index(text[3])])
    with_logprobs = client.responses.create(**ASKED, include=["message.output_text.logprobs"], top_logprobs=2)
    [part] = with_logprobs.output[0].content  # type: ignore[union-attr]
    assert len(part.logprobs or []) == 30  # type: ignore[union-attr]


def test_the_events_of_a_stream_build_the_same_response(client: openai.OpenAI) -> None:
    fields = ASKED | {"extra_body": {"guided_regex": "[a-z]{20}"}}
    whole = client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))  # type: ignore[union-attr]


def test_a_stream_has_named_events_and_no_done(server: WorkerServer) -> None:
    status, headers, data = ask(server, "POST", PATH, ASKED | {"stream": True})
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    for block in data.decode().removesuffix("\n\n").split("\n\n"):
        name, _, event = block.partition("\n")
        assert name == f"event: {json.loads(event.removeprefix('data: '))['type']}"
    assert name == "event: response.incomplete"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "weather"}])
def test_functions_are_called(client: openai.OpenAI, choice: Any) -> None:
    fields = ASKED | {"tools": [WEATHER, NOW], "tool_choice": choice, "max_output_tokens": 300}
    fields |= {"parallel_tool_calls": False}
    [call] = client.responses.create(**fields).output
    assert call.type == "function_call"
    assert call.name == "weather" or choice == "required"
    assert isinstance(json.loads(call.arguments), dict)
    with client.responses.stream(**fields) as stream:
        events = list(stream)
    [added] = [event for event in events if event.type == "response.output_item.added"]
    assert added.item.name == call.name  # type: ignore[union-attr]
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments
    assert len(deltas) > 1 or call.name == "now"
    cut = client.responses.create(**fields | {"max_output_tokens": 5})
    assert (cut.status, cut.output_text) == ("incomplete", "")


class Weather(BaseModel):
    sunny: bool


def test_a_format_is_parsed_by_the_client(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(**ASKED | {"max_output_tokens": 300}, text_format=Weather)
    assert isinstance(parsed.output_parsed, Weather)
    plain = client.responses.create(**ASKED | {"max_output_tokens": 300}, text={"format": {"type": "json_object"}})
    assert plain.status == "incomplete" or isinstance(json.loads(plain.output_text), dict)
    schema = Weather.model_json_schema()
    form = {"type": "json_object", "schema": schema}  # as in llama.cpp's chats
    with_schema = client.responses.create(**ASKED | {"max_output_tokens": 300}, text={"format": form})  # type: ignore[call-overload]
    assert Weather.model_validate_json(with_schema.output_text)


@pytest.mark.parametrize("name", ["weather", None])
def test_the_response_shows_its_format_as_openai_does(server: WorkerServer, name: str | None) -> None:
    """Regression: clients that check types failed, as the name was missing."""
    form = {"type": "json_schema", "schema": Weather.model_json_schema(), "strict": True}
    fields = {"input": "x", "text": {"format": form if name is None else form | {"name": name}, "verbosity": "medium"}}
    reply = ask(server, "POST", PATH, fields)[2]
    assert reply["text"] == {"format": form | {"name": name or "response"}, "verbosity": "medium"}
    assert reply["background"] is False
    TypeAdapter(Response).validate_python(reply)


def test_items_become_messages() -> None:
    """The history that OpenAI's client, the AI SDK and agents send back."""
    items: list[Any] = [
        {"role": "developer", "content": "Be short.", "type": None},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "now",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call", "call_id": "c2", "name": "now", "arguments": {}},  # as some clients send it
        {"type": "function_call_output", "call_id": "c1", "output": "5"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "6"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rain"}},
        {"type": "tool_search_call", "call_id": "c4", "arguments": {"query": "rain"}, "execution": "client"},
        {"type": "tool_search_output", "call_id": "c4", "tools": [], "execution": "client"},
        {"type": "file_search_call", "id": "fs_1", "queries": ["rain"], "results": None, "status": "completed"},
        {"type": "mcp_list_tools", "id": "ml_1", "server_label": "x", "tools": []},
        {"type": "custom_tool_call", "call_id": "c3", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "Done."},
    ]
    body = ResponsesBody.model_validate({"input": items, "instructions": "You are a clock."})
    call = {"type": "function", "function": {"name": "now", "arguments": "{}"}}
    as_object = {"id": "c2", "type": "function", "function": {"name": "now", "arguments": {}}}
    patch = {"name": "apply_patch", "arguments": '{"input": "*** Begin"}'}
    assert [message.model_dump(exclude_none=True) for message in chat_of(body).messages] == [
        {"role": "system", "content": "You are a clock.\n\nBe short."},
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c1", **call}, as_object]},
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
        {"role": "tool", "content": "6", "tool_call_id": "c2"},
        {"role": "assistant", "content": "No.", "tool_calls": [{"id": "c3", "type": "function", "function": patch}]},
        {"role": "tool", "content": "Done.", "tool_call_id": "c3"},
    ]


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        (
            {"input": [{"type": "item_reference", "id": "msg_1"}]},
            "input[0]",
            "send the item itself, as clients do with store",
        ),
        ({"input": [{"role": "user", "content": "x"}, {"id": "msg_1"}]}, "input[1]", "refers to item 'msg_1'"),
        ({"input": [{"type": "mesage", "role": "user", "content": "x"}]}, "input[0].type", "function_call_output"),
        ({"input": [{"type": "mcp_call", "name": "x", "output": "7"}]}, "input[0].type", "is 'mcp_call'"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role", "'assistant', 'system' or"),
        (
            {"input": [{"role": "user", "content": [PART, {"type": "input_image", "image_url": "x" * 999}]}]},
            "input[0].content[1].type",
            "the model takes text alone",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0]", "needs text"),
        ({"input": [{"role": "user", "content": None}]}, "input[0].content", "it must be a string or an array"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0]", "has name and arguments"),
        ({"input": [{"type": "custom_tool_call", "name": "f"}]}, "input[0]", "has name and input"),
        ({"input": "x" * 5000}, "input", "the prompt has"),
        ({"max_output_tokens": 1 << 30}, "max_output_tokens", "max_output_tokens is 1073741824"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "give the schema"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "tools[0].type is 'web_search'; it must be function"),
        ({"tools": [NOW, {"type": "functoin"}]}, "tools[1].type", "tools[1].type is 'functoin'; it must be function"),
        (
            {"tools": [NOW, {"type": "web_search"}], "tool_choice": {"type": "web_search"}},
            "tool_choice",
            "only functions can be called",
        ),
        ({"max_output_token": 5}, "max_output_token", "did you mean max_output_tokens?"),
        ({"text": {"fromat": {"type": "json_object"}}}, "text.fromat", "did you mean format?"),
        ({"text": {"type": "json_object"}}, "text.type", "did you mean format?"),
        ({"text": {"format": {"type": "json_schema", "json_schema": {}}}}, "text.format.json_schema", "mean schema?"),
        ({"reasoning": {"efort": "low"}}, "reasoning.efort", "did you mean effort?"),
        ({"input": []}, "input", "between 1 and 1024"),
        (
            {"include": ["reasoning.encrypted_content", "message.output_text.logprob"]},
            "include[1]",
            "'message.output_text.logprob'; did you mean message.output_text.logprobs?",
        ),
    ],
)
def test_what_is_not_supported_is_refused(
    server: WorkerServer, fields: dict[str, Any], param: str | None, text: str
) -> None:
    status, _, reply = ask(server, "POST", PATH, {"input": "x", "max_output_tokens": 9} | fields)
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert text in reply["error"]["message"]


def test_a_conversation_may_ask_to_be_cut_and_is_refused_if_it_is_too_long(server: WorkerServer) -> None:
    fields = {"input": "x", "max_output_tokens": 1, "temperature": 0, "truncation": "auto"}
    assert ask(server, "POST", PATH, fields)[0] == 200
    status, _, reply = ask(server, "POST", PATH, fields | {"input": "word " * 50_000})
    assert (status, reply["error"]["code"]) == (400, "context_length_exceeded")
