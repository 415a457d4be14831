"""Tests the fields of one path of OpenAI's API on another: each is refused with what to use there, or asks for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.server import WorkerServer
from tests.support.grammars import ending_target
from tests.support.http_requests import ask
from tests.support.worker_server import TEMPLATE

CHAT, TEXT, RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/responses"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 2, "temperature": 0},
    TEXT: {"prompt": "abc", "max_tokens": 2, "temperature": 0},
    RESPONSE: {"input": "abc", "max_output_tokens": 2, "temperature": 0},
}
STORED = "use input with the whole conversation"


@pytest.fixture(scope="module")
def target() -> Target:
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE
    return target


@pytest.mark.parametrize(
    ("path", "fields", "advice"),
    [
        (CHAT, {"previous_response_id": "resp_1"}, "use messages, or prompt, with the whole conversation"),
        (CHAT, {"conversation": "conv_1"}, "use messages, or prompt, with the whole conversation"),
        (CHAT, {"background": True}, "use stream, as nothing is stored"),
        (CHAT, {"prompt": {"id": "pmpt_1"}}, "use messages, or /v1/completions"),
        (CHAT, {"context_management": [{"type": "compaction"}]}, "leave it out"),
        (CHAT, {"include": ["message.output_text.logprobs"]}, "use logprobs"),
        (CHAT, {"text": {"format": {"type": "json_object"}}}, "use response_format"),
        (CHAT, {"truncation": "auto"}, "use truncate_prompt_tokens"),
        (CHAT, {"max_tool_calls": 1}, "use parallel_tool_calls: false for one call"),
        (TEXT, {"previous_response_id": "resp_1"}, "use prompt with the whole conversation"),
        (TEXT, {"background": True}, "use stream, as nothing is stored"),
        (TEXT, {"max_tool_calls": 1}, "use /v1/chat/completions"),
        (TEXT, {"reasoning_effort": "high"}, "use /v1/chat/completions"),
        (TEXT, {"reasoning": {"effort": "high"}}, "use /v1/chat/completions"),
        (TEXT, {"include_reasoning": False}, "use /v1/chat/completions"),
        (TEXT, {"separate_reasoning": False}, "use /v1/chat/completions"),
        (TEXT, {"reasoning_format": "deepseek"}, "use /v1/chat/completions"),
        (TEXT, {"add_generation_prompt": False}, "use /v1/chat/completions"),
        (TEXT, {"think": True}, "use /v1/chat/completions"),
        (TEXT, {"system": "You are brief."}, "use /v1/chat/completions"),
        (TEXT, {"input": "xyz"}, "use prompt"),
        (RESPONSE, {"reasoning_effort": "high"}, "use reasoning.effort"),
        (RESPONSE, {"enable_thinking": False}, "use reasoning.effort"),
        (RESPONSE, {"response_format": {"type": "json_object"}}, "use text.format"),
        (RESPONSE, {"format": "json"}, "use text.format"),
        (RESPONSE, {"max_tokens": 5}, "use max_output_tokens"),
        (RESPONSE, {"max_new_tokens": 5}, "use max_output_tokens"),
        (RESPONSE, {"messages": BODIES[CHAT]["messages"]}, "use input"),
        (RESPONSE, {"system": "You are brief."}, "use instructions"),
        (RESPONSE, {"functions": [{"name": "f"}]}, "use tools"),
        (RESPONSE, {"logprobs": True}, "use top_logprobs"),
        (RESPONSE, {"prompt_logprobs": 0}, "use /v1/chat/completions"),
        (RESPONSE, {"return_tokens_as_token_ids": True}, "use /v1/chat/completions"),
        (RESPONSE, {"include_reasoning": False}, "use /v1/chat/completions"),
        (RESPONSE, {"reasoning_format": "none"}, "use /v1/chat/completions"),
        (RESPONSE, {"add_generation_prompt": False}, "use /v1/chat/completions"),
        (RESPONSE, {"previous_response_id": "resp_1"}, STORED),
        (RESPONSE, {"conversation": "conv_1"}, STORED),
        (RESPONSE, {"background": True}, "use stream, as nothing is stored"),
        (RESPONSE, {"prompt": {"id": "pmpt_1"}}, "use instructions or input, as no prompts are stored"),
    ],
)
def test_a_field_of_another_path_is_refused(
    server: WorkerServer, path: str, fields: dict[str, Any], advice: str
) -> None:
    status, _, reply = ask(server, "POST", path, BODIES[path] | fields)
    [name] = fields
    assert (status, reply["error"]["param"]) == (400, name), reply
    assert reply["error"]["message"].startswith(f"{name}: not supported here; {advice}")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"background": False, "previous_response_id": None, "include": [], "truncation": "disabled"}),
        (CHAT, {"text": {"format": {"type": "text"}}, "max_tool_calls": None, "conversation_id": "a"}),
        (TEXT, {"include_reasoning": True, "separate_reasoning": True, "reasoning_format": "auto"}),
        (TEXT, {"parallel_tool_calls": False, "reasoning_effort": None, "max_output_tokens": 2}),
        (RESPONSE, {"n": 1, "max_tokens": 2, "max_new_tokens": 2, "logprobs": False, "functions": []}),
        (RESPONSE, {"reasoning": {"summary": "auto", "generate_summary": "concise"}, "max_tool_calls": 3}),
        (RESPONSE, {"background": False, "conversation": None, "include": ["reasoning.encrypted_content"]}),
    ],
)
def test_a_value_that_asks_for_nothing_is_accepted(server: WorkerServer, path: str, fields: dict[str, Any]) -> None:
    status, _, reply = ask(server, "POST", path, BODIES[path] | fields)
    assert status == 200, reply


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"n": 2}, "n", "n is 2; it must be at most 1"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary", "'auto', 'concise' or 'detailed'"),
        ({"include": ["usage"]}, "include[0]", "is 'usage'; give one of message.output_text.logprobs, code_"),
        (
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            "stream_options.continuous_usage_stats",
            "the last event has usage",
        ),
        (
            {"input": [{"type": "reasoning", "content": "a"}]},
            "input[0].content",
            "is 'a'; it must be an array of parts",
        ),
        ({"input": [{"type": "reasoning", "summary": "a"}]}, "input[0].summary", "is 'a'; it must be an array"),
    ],
)
def test_a_wrong_value_in_a_response_is_refused(
    server: WorkerServer, fields: dict[str, Any], param: str, text: str
) -> None:
    status, _, reply = ask(server, "POST", RESPONSE, BODIES[RESPONSE] | fields)
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert text in reply["error"]["message"]


@pytest.mark.parametrize(
    "fields", [{"structured_outputs": {"grammar": "root ::= "}}, {"guided_regex": "()"}, {"grammar": 'start: ""'}]
)
def test_a_grammar_of_nothing_names_its_field(server: WorkerServer, fields: dict[str, Any]) -> None:
    """Regression: the answer was empty, with status 200."""
    error = ask(server, "POST", TEXT, BODIES[TEXT] | fields)[2]["error"]
    assert error["param"] == ("structured_outputs.grammar" if "structured_outputs" in fields else next(iter(fields)))
    assert "is refused: only an empty text matches it" in error["message"]
