"""Tests the tools of /v1/responses: functions, those in namespaces, and tools that the worker cannot call."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.openai.responses_body import ResponsesBody, chat_of
from suffolk.serving.worker.server import WorkerServer
from tests.serving.worker.openai.test_responses import ASKED, NOW, PATH, WEATHER
from tests.serving.worker.openai.test_tools import TEMPLATE
from tests.support.grammars import ending_target
from tests.support.http_requests import ask

SEARCH: dict[str, Any] = {"type": "web_search", "external_web_access": False}
PATCH: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
}
FILES: dict[str, Any] = {"type": "namespace", "name": "mcp__files__", "description": "Files", "tools": [PATCH, WEATHER]}
"""As Codex sends the tools of an MCP server."""


@pytest.fixture(scope="module")
def target() -> Target:
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE
    return target


@pytest.mark.parametrize("other", [SEARCH, PATCH, {"type": "web_search_2025_08_26"}, FILES | {"tools": [PATCH]}])
def test_tools_that_the_worker_cannot_call_are_left_out_beside_functions(client: openai.OpenAI, other: Any) -> None:
    """As Codex sends its tools."""
    found = client.responses.create(**ASKED, tools=[other, NOW, other], tool_choice="auto")  # type: ignore[list-item]
    alone = client.responses.create(**ASKED, tools=[NOW], tool_choice="auto")  # type: ignore[list-item]
    assert found.output_text == alone.output_text
    assert found.usage.input_tokens == alone.usage.input_tokens  # type: ignore[union-attr]
    assert [tool.type for tool in found.tools] == ["function"]


def test_functions_of_a_namespace_are_called_by_both_names(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = ASKED | {"tools": [SEARCH, FILES], "tool_choice": "required", "max_output_tokens": 300}
    fields |= {"parallel_tool_calls": False}
    found = client.responses.create(**fields)
    [call] = found.output
    assert call.type == "function_call"
    assert (call.namespace, call.name) == ("mcp__files__", "weather")
    assert isinstance(json.loads(call.arguments), dict)
    assert [tool.model_dump(exclude_none=True) for tool in found.tools] == [FILES | {"tools": [WEATHER]}]
    with client.responses.stream(**fields) as stream:
        added = [event.item for event in stream if event.type == "response.output_item.added"]
    assert [(item.namespace, item.name) for item in added] == [("mcp__files__", "weather")]  # type: ignore[union-attr]
    named = {"type": "function", "namespace": "mcp__files__", "name": "weather"}
    assert client.responses.create(**fields | {"tool_choice": named}).output[0].name == "weather"  # type: ignore[union-attr]


def test_the_model_knows_functions_of_a_namespace_by_one_name() -> None:
    call = {"type": "function_call", "call_id": "c", "namespace": "mcp__files__", "name": "weather", "arguments": "{}"}
    chat = chat_of(ResponsesBody.model_validate({"input": [call], "tools": [NOW, FILES]}))
    assert chat.tools is not None
    assert [tool["function"]["name"] for tool in chat.tools] == ["now", "mcp__files__weather"]
    [message] = chat.messages
    assert message.tool_calls[0]["function"]["name"] == "mcp__files__weather"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([SEARCH, {"type": "function", "name": "a b"}], "tools[1].name"),
        ([FILES, {"type": "function", "name": "f", "parameters": [1]}], "tools[1].parameters"),
        ([SEARCH, WEATHER | {"parameters": {"type": "objekt"}}], "tools[1].parameters"),
        ([FILES | {"tools": [NOW, NOW]}], "tools[0].tools[1].name"),
        ([{"name": "now"}], "tools[0].type"),
        ([{"type": "function", "function": {"name": "now"}}], "tools[0].function"),
        ([FILES | {"tools": []}], "tools[0].type"),
    ],
)
def test_errors_have_the_place_of_the_tool_in_the_request(
    server: WorkerServer, tools: list[dict[str, Any]], param: str
) -> None:
    """Regression: tools that were left out did not count, and paths were those of chats."""
    status, _, reply = ask(server, "POST", PATH, {"input": "x", "tools": tools, "tool_choice": "required"})
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert reply["error"]["message"].startswith(param)
