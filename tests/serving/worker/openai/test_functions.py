"""Tests OpenAI's older names of tools, ``functions`` and ``function_call``, through OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.openai.chat import ChatMessage
from suffolk.serving.worker.openai.tool_choice import read_function_call, read_tool_choice
from suffolk.serving.worker.openai.tool_format import FORMATS
from suffolk.serving.worker.server import WorkerServer
from tests.serving.worker.openai.test_tools import ASKED, PARAMETERS, TEMPLATE, TOOLS
from tests.support.grammars import ending_target
from tests.support.http_requests import ask
from tests.support.openai_server import client_of

FUNCTIONS: Any = [tool["function"] for tool in TOOLS]
NAMED = {"name": "weather"}


@pytest.fixture(scope="module")
def target() -> Target:
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE
    return target


def test_a_named_function_is_called_in_the_answer_and_in_the_stream(server: WorkerServer) -> None:
    fields = {**ASKED, "functions": FUNCTIONS, "function_call": NAMED}
    with client_of(server) as client:
        answer = client.chat.completions.create(**fields).choices[0]
        chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**fields, stream=True)]
    call = answer.message.function_call
    assert call is not None
    assert (call.name, answer.message.content, answer.message.tool_calls) == ("weather", None, None)
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    assert answer.finish_reason == chunks[-1].finish_reason == "stop"  # as for a named tool
    parts = [chunk.delta.function_call for chunk in chunks if chunk.delta.function_call]
    assert [part.name for part in parts] == ["weather"] + [None] * (len(parts) - 1)
    assert "".join(part.arguments or "" for part in parts) == call.arguments
    assert all(chunk.delta.tool_calls is None for chunk in chunks)


def test_functions_that_are_not_called_change_nothing(server: WorkerServer) -> None:
    texts = [
        ask(server, "POST", "/v1/chat/completions", ASKED | {"max_completion_tokens": 9} | fields)[2]["choices"]
        for fields in ({"tools": TOOLS}, {"functions": FUNCTIONS}, {"functions": FUNCTIONS, "function_call": "auto"})
    ]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("finish", ["eos", "length"])
def test_an_answer_that_may_have_one_call_has_the_first(size: int, finish: str) -> None:
    """Regression: with ``parallel_tool_calls`` false, the answer had all calls that the model made."""
    text = "".join(
        f'<tool_call>{{"name": "{name}", "arguments": {arguments}'
        for name, arguments in (("now", "{}}</tool_call>\n"), ("weather", '{"days": 2'))
    )
    text += "}}</tool_call>" if finish == "eos" else ""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    for tools in (read_function_call(FUNCTIONS, None), read_tool_choice(TOOLS, "auto", is_parallel=False)):
        message = ChatMessage(tools, FORMATS["hermes"])
        found = [message.add(part, finish if at == len(parts) - 1 else "") for at, part in enumerate(parts)]
        calls = [call for _, _, each in found for call in each]
        assert "".join(content for _, content, _ in found) == ""
        assert [(call["index"], call["function"]) for call in calls] == [(0, {"name": "now", "arguments": "{}"})]
        assert message.finish(finish) == ("tool_calls" if finish == "eos" else "length")
    parallel = ChatMessage(read_tool_choice(TOOLS, "auto"), FORMATS["hermes"])
    assert {call["index"] for call in parallel.add(text, finish)[2]} == {0, 1}


def test_earlier_calls_and_their_results_reach_the_template(server: WorkerServer) -> None:
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"unit": "C"}'}},
        {"role": "function", "name": "weather", "content": "rain"},
    ]
    tokens = ask(server, "POST", "/tokenize", {"messages": messages})[2]["tokens"]
    text = ask(server, "POST", "/detokenize", {"tokens": tokens})[2]["prompt"]
    assert text == '<user>Is it <tool_call>?<assistant><tool_call>{"unit": "C"}</tool_call><tool>rain<assistant>'


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"functions": [{}]}, "functions[0].name", "functions[0].name is null"),
        ({"functions": [{"name": "f", "parameters": 5}]}, "functions[0].parameters", "give a schema"),
        ({"functions": FUNCTIONS, "tools": TOOLS}, "functions", "older name of tools"),
        ({"functions": FUNCTIONS, "function_call": "required"}, "function_call", "none, auto or"),
        ({"functions": FUNCTIONS, "function_call": {"name": "g"}}, "function_call", "are weather, now"),
        ({"function_call": NAMED}, "function_call", "it needs functions"),
        ({"messages": [{"role": "assistant", "function_call": {}}]}, "messages[0].function_call", "has no name"),
        ({"messages": [{"role": "assistant", "function_call": "f"}]}, "messages[0].function_call", "has no name"),
    ],
)
def test_wrong_functions_are_refused(server: WorkerServer, fields: Any, param: str, text: str) -> None:
    status, _, reply = ask(server, "POST", "/v1/chat/completions", ASKED | fields)
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert text in reply["error"]["message"]


@pytest.mark.parametrize("fields", [{"tools": TOOLS}, {"functions": FUNCTIONS}])
def test_tokenized_chats_have_the_tools_of_their_prompts(server: WorkerServer, fields: dict[str, Any]) -> None:
    """Regression: tools that the answer may not call counted, and functions did not."""
    chat: dict[str, Any] = {"messages": ASKED["messages"]}
    choice = "tool_choice" if "tools" in fields else "function_call"
    counts = []
    for body in (chat, chat | fields, chat | fields | {choice: "none"}):
        counts.append(ask(server, "POST", "/tokenize", body)[2]["count"])
        usage = ask(server, "POST", "/v1/chat/completions", body | {"max_tokens": 1})[2]["usage"]
        assert usage["prompt_tokens"] == counts[-1]
    assert counts[0] == counts[2] < counts[1]
