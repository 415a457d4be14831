"""Tests tools and response formats through OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.worker.server import WorkerServer
from tests.support.grammars import ending_target
from tests.support.http_requests import ask
from tests.support.openai_server import client_of
from tests.support.worker_server import working

TEMPLATE = (
    "{% for tool in tools or [] %}<tool>{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function.arguments | tojson }}</tool_call>{% endfor %}"
    "{% endfor %}<assistant>"
)
PARAMETERS = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["unit", "days"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False, "whitespace_pattern": None},
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Forecast.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
ASKED: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Is it <tool_call>?"}],
    "max_completion_tokens": 150,
    "seed": 3,
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"unit": "C", "days": 2}'}}


@pytest.fixture(scope="module")
def server() -> Iterator[WorkerServer]:
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE
    with working(target, {"prompt-lookup": PromptLookupDrafter(target.vocab_size)}) as server:
        yield server


@pytest.fixture
def client(server: WorkerServer) -> Iterator[openai.OpenAI]:
    with client_of(server) as client:
        yield client


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_required_call_is_one_in_the_answer_and_in_the_stream(client: openai.OpenAI, choice: Any) -> None:
    fields = {**ASKED, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    finish = "tool_calls" if choice == "required" else "stop"
    answer = client.chat.completions.create(**fields).choices[0]
    assert answer.finish_reason == finish
    assert answer.message.content is None
    [call] = answer.message.tool_calls or []
    assert call.type == "function"
    assert call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    if call.function.name == "weather":
        jsonschema.validate(arguments, PARAMETERS)
    else:
        assert (call.function.name, arguments) == ("now", {})
        assert choice == "required"
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**fields, stream=True) if chunk.choices]
    assert chunks[-1].finish_reason == finish
    assert "".join(chunk.delta.content or "" for chunk in chunks) == ""
    parts = [each for chunk in chunks for each in chunk.delta.tool_calls or []]
    assert {part.index for part in parts} == {0}
    assert [part.function.name for part in parts if part.function] == [call.function.name] + [None] * (len(parts) - 1)
    assert "".join(part.function.arguments or "" for part in parts if part.function) == call.function.arguments


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_is_cut_off_has_no_content(client: openai.OpenAI, choice: Any) -> None:
    for most in (1, 5, 20, 40, 60):
        fields = ASKED | {"tools": TOOLS, "tool_choice": choice, "max_completion_tokens": most}
        answer = client.chat.completions.create(**fields).choices[0]
        chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**fields, stream=True)]
        assert answer.message.content in (None, "")
        assert "".join(chunk.delta.content or "" for chunk in chunks) == ""
        arguments = [call.function.arguments for call in answer.message.tool_calls or [] if call.type == "function"]
        parts = [part.function for chunk in chunks for part in chunk.delta.tool_calls or [] if part.function]
        assert "".join(part.arguments or "" for part in parts) == "".join(arguments)
        if answer.finish_reason == "length":
            assert not arguments or most > 20


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_an_answer_without_calls_is_that_of_a_plain_one(client: openai.OpenAI, choice: Any) -> None:
    answer = client.chat.completions.create(**ASKED, tools=TOOLS, tool_choice=choice).choices[0]
    chunks = client.chat.completions.create(**ASKED, tools=TOOLS, tool_choice=choice, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answer.message.content
    assert answer.message.tool_calls is None
    if choice == "none":
        assert client.chat.completions.create(**ASKED).choices[0].message.content == text


def test_earlier_calls_and_their_results_reach_the_template(client: openai.OpenAI) -> None:
    messages: Any = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    asked = {"messages": messages, "tools": TOOLS[1:]}
    tokens = client.post("/tokenize".replace("/", "../", 1), body=asked, cast_to=object)
    text = client.post("../detokenize", body={"tokens": dict(tokens)["tokens"]}, cast_to=object)  # type: ignore[call-overload]
    assert dict(text)["prompt"] == (  # type: ignore[call-overload]
        '<tool>{"type": "function", "function": {"name": "now"}}<user>Is it <tool_call>?<assistant>'
        '<tool_call>{"unit": "C", "days": 2}</tool_call><tool>rain<assistant>'
    )


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_response_format_holds_with_and_without_tools(client: openai.OpenAI, tools: Any) -> None:
    response_format: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": PARAMETERS, "strict": True}}
    more = {} if tools is None else {"tools": tools}
    for drafter in ("none", "prompt-lookup"):
        extra = {"suffolk": {"drafter": drafter}}
        answer = client.chat.completions.create(**ASKED, **more, response_format=response_format, extra_body=extra)
        message = answer.choices[0].message
        if message.tool_calls:
            assert tools is not None
        else:
            jsonschema.validate(json.loads(message.content or ""), PARAMETERS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": [{"type": "function"}]}, "0..function is no object"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice is 'maybe'"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "name": "now"}},
            "tool_choice.function is no object; give {'type'",
        ),
        ({"tool_choice": "required"}, "give tools"),
        ({"response_format": {"type": "xml"}}, "response_format.type is 'xml'"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}}, "Invalid type"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"strict": True, "schema": {"type": "object", "not": {"maxProperties": 2}}},
                }
            },
            "Unimplemented keys",
        ),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": 5}}}}}
                ],
                "tool_choice": "required",
            },
            "parameters of the function 'f' is refused",
        ),
    ],
)
def test_wrong_tools_and_schemas_are_bad_requests(client: openai.OpenAI, fields: Any, message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        client.chat.completions.create(**ASKED, **fields)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_template_without_tools_gets_them_as_text(choice: Any) -> None:
    target = ending_target()
    target.tokenizer.chat_template = (
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    )
    messages: Any = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    fields = ASKED | {"messages": messages, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
    with working(target) as server, client_of(server) as client:
        tokens = ask(server, "POST", "/tokenize", {"messages": messages, "tools": TOOLS[1:]})[2]["tokens"]
        prompt = ask(server, "POST", "/detokenize", {"tokens": tokens})[2]["prompt"]
        tokens = ask(server, "POST", "/tokenize", {"messages": messages})[2][
            "tokens"
        ]  # as a summary of the chat is asked for
        history = ask(server, "POST", "/detokenize", {"tokens": tokens})[2]["prompt"]
        assert ask(server, "POST", "/tokenize", {"messages": ASKED["messages"], "tools": [{}]})[0] == 400
        [call] = client.chat.completions.create(**fields).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name in ("weather", "now")
    assert isinstance(json.loads(call.function.arguments), dict)
    assert history == (
        '<user>Is it <tool_call>?<assistant>[{"name": "weather", "arguments": {"unit": "C", "days": 2}}]'
        "<user>The function returned: rain"
    )
    assert prompt == (
        "<user>These functions can be called. To call some, answer with a JSON list alone: "
        '[{"name": FUNCTION, "arguments": {ARGUMENT: VALUE}}]\n{"name": "now"}\n\nIs it <tool_call>?'
        '<assistant>[{"name": "weather", "arguments": {"unit": "C", "days": 2}}]<user>The function returned: rain'
    )


def test_a_conversation_goes_on_after_a_call_that_was_cut_off(server: WorkerServer) -> None:
    """An agent sends the call back as it came, and as its result that the arguments are no JSON."""
    call = CALL | {"function": {"name": "weather", "arguments": '{"unit": "C'}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "no JSON"}
    messages = [*ASKED["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    status, _, reply = ask(server, "POST", "/tokenize", {"messages": messages, "tools": TOOLS})
    assert status == 200, reply
    prompt = ask(server, "POST", "/detokenize", {"tokens": reply["tokens"]})[2]["prompt"]
    assert r'<tool_call>"{\"unit\": \"C"</tool_call><tool>no JSON' in prompt
