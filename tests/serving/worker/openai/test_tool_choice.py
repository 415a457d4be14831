"""Tests tools and tool choices, and the grammars that they become."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.worker.openai.history import template_messages
from suffolk.serving.worker.openai.tool_calls import ToolCall, ToolCallParser
from suffolk.serving.worker.openai.tool_choice import MAX_TOOLS, read_tool_choice
from suffolk.serving.worker.openai.tool_format import FORMATS
from tests.support.drafters import MadeUpDrafter, eager_decoder, random_tree
from tests.support.grammars import END, Oracle, ending_target, tokens_of
from tests.support.tiny_models import tiny_tokenizer


def tool(name: str, **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


PARAMETERS = {
    "type": "object",
    "properties": {"unit": {"$ref": "#/$defs/Unit"}},
    "required": ["unit"],
    "additionalProperties": False,
    "$defs": {"Unit": {"enum": ["C", "F"]}},
    "x-guidance": {"whitespace_flexible": False, "whitespace_pattern": None},
}
TOOLS = [tool("weather", parameters=PARAMETERS), tool("now")]
NAMED = {"type": "function", "function": {"name": "now"}}


@pytest.fixture(scope="module")
def target() -> Target:
    return ending_target()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_required_call_is_one_whatever_is_drafted(target: Target, name: str, choice: Any) -> None:
    tools = read_tool_choice(TOOLS, choice, is_parallel=False)
    assert tools is not None
    grammar = tools.grammar(FORMATS[name], target.tokenizer)
    assert grammar is not None
    settings = SamplingSettings(150, 1.0, seed=2, grammar=grammar)
    rng = np.random.default_rng(0)
    drafters = (None, MadeUpDrafter(lambda request: random_tree(rng, 9, 257)))
    runs = [eager_decoder(target, drafter).generate(tokens_of("x"), settings) for drafter in drafters]
    for run in runs:
        list(run)
    assert runs[0].tokens == runs[1].tokens
    text = target.tokenizer.decode([token for token in runs[0].tokens if token != END])
    parser = ToolCallParser(FORMATS[name], tools.functions)
    [call] = parser.push(text) + parser.finish()
    assert isinstance(call, ToolCall)
    assert call.name in ("now", "weather")
    assert json.loads(call.arguments) in ({}, {"unit": "C"}, {"unit": "F"})
    assert call.name == "now" or choice != NAMED


def test_several_calls_may_be_required(target: Target) -> None:
    tools = read_tool_choice(TOOLS, "required")
    assert tools is not None
    for name, text in {
        "hermes": '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "mistral": '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]',
        "llama": '{"name": "now", "parameters": {}}; {"name": "now", "parameters": {}}',
        "json": '[{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]',
    }.items():
        grammar = tools.grammar(FORMATS[name], target.tokenizer)
        assert grammar is not None
        assert Oracle(target, grammar).is_whole(tokens_of(text)), name
        parser = ToolCallParser(FORMATS[name], tools.functions)
        assert parser.push(text) + parser.finish() == [ToolCall("now", "{}")] * 2


def test_the_tools_that_are_allowed_are_the_only_ones() -> None:
    for mode in ("auto", "required"):
        allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "now"}}]}
        found = read_tool_choice(TOOLS, {"type": "allowed_tools", "allowed_tools": allowed})
        assert found is not None
        assert (list(found.functions), found.is_required, found.is_named) == (["now"], mode == "required", False)


def test_a_mark_that_is_a_token_is_generated_as_that_token() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<tool_call>"])
    tools = read_tool_choice(TOOLS, NAMED)
    assert tools is not None
    grammar = tools.grammar(FORMATS["hermes"], tokenizer)
    assert grammar is not None
    assert grammar.text.startswith('start: calls\ncalls: <[257]> "\\n" call "\\n" "</tool_call>"\n')


def test_without_a_duty_to_call_there_is_no_grammar(target: Target) -> None:
    for choice in (None, "auto"):
        tools = read_tool_choice(TOOLS, choice)
        assert tools is not None
        assert tools.grammar(FORMATS["hermes"], target.tokenizer) is None
    assert read_tool_choice(TOOLS, "none") is None
    assert read_tool_choice([], None) is None
    assert read_tool_choice(None, "auto") is None


def test_an_answer_of_json_may_be_a_call_instead(target: Target) -> None:
    tools = read_tool_choice(TOOLS, "auto")
    assert tools is not None
    for answer in (Grammar("json_object"), Grammar("json_schema", '{"type": "object"}')):
        grammar = tools.grammar(FORMATS["hermes"], target.tokenizer, answer)
        assert grammar is not None
        oracle = Oracle(target, grammar)
        assert oracle.is_whole(tokens_of('{"a": 5}'))
        assert oracle.is_whole(tokens_of('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'))
        assert not oracle.accepts(tokens_of("now"))


@pytest.mark.parametrize(
    ("tools", "choice", "message"),
    [
        ([{"type": "retrieval"}], None, r"tools\[0\].type is 'retrieval'"),
        ([tool("f"), tool("f")], None, r"tools\[1\].function.name is 'f', which an earlier function has"),
        ([tool("a b")], None, "tools.0..function.name is 'a b'; it must be 1 to 128"),
        ([tool("f", parameters=[1])], None, "tools.0..function.parameters is no JSON object"),
        ([tool("f", parameters={"type": "string"})], None, "parameters.type is 'string'; it must be object"),
        ([tool("f", parameters={"type": "array"})], "required", "parameters.type is 'array'; it must be object"),
        ([tool(f"f{at}") for at in range(MAX_TOOLS + 1)], None, "tools has 129 entries; the limit is 128"),
        (TOOLS, "maybe", "tool_choice is 'maybe'; it must be none, auto, required or a function"),
        (
            TOOLS,
            {"type": "function", "function": {"name": "g"}},
            "names the function 'g'; the functions of the request are",
        ),
        (TOOLS, {"type": "function", "function": {"name": []}}, "tool_choice names no function"),
        (TOOLS, {"type": "allowed_tools"}, "tool_choice.allowed_tools must have mode, auto or required, and tools"),
        (
            TOOLS,
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("g")]}},
            "tool_choice.allowed_tools names 'g'; the functions of tools are weather, now",
        ),
        (TOOLS, {"type": "custom", "custom": {"name": "g"}}, "tool_choice.type is 'custom'; it must be function"),
        (None, "required", "tool_choice is 'required'; give tools"),
    ],
)
def test_wrong_tools_are_refused(tools: Any, choice: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_tool_choice(tools, choice)


def test_arguments_of_earlier_calls_reach_the_template_as_objects() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "5"}]
    [assistant, answer] = template_messages(messages)
    assert assistant["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert answer == messages[1]
    for arguments in ("null", " \n", "", None, "[]"):  # of functions without parameters, as clients send them back
        call["function"] = {"name": "f", "arguments": arguments}
        assert template_messages(messages)[0]["tool_calls"][0]["function"]["arguments"] == {}
    call["function"] = {"name": "f", "arguments": '{"a'}
    assert template_messages(messages)[0]["tool_calls"][0]["function"]["arguments"] == '{"a'
    for arguments in ("[1]", '"a"', 5):  # a model's mistakes, which agents send back with an error as result
        call["function"] = {"name": "f", "arguments": arguments}
        assert template_messages(messages)[0]["tool_calls"][0]["function"]["arguments"] == str(arguments)


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": {"a": {"type": "integer"}}},
        {"type": ["object", "null"], "properties": {"a": {"type": "integer"}}},
        {"type": None, "anyOf": [{"type": "string"}, {"type": "object", "properties": {"a": {"type": "integer"}}}]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
    ],
)
def test_arguments_are_an_object_whatever_else_fits_their_schema(target: Target, parameters: dict[str, Any]) -> None:
    """Regression: numbers, texts and null were arguments of calls."""
    assert calls_with(target, parameters, '{"a": 1}')
    for other in ("1", "null", '"b"', "[]"):
        assert not calls_with(target, parameters, other)


@pytest.mark.parametrize(
    "parameters", [[], {"type": "object", "properties": []}, {"type": "object", "properties": None}]
)
def test_empty_lists_are_empty_objects(target: Target, parameters: Any) -> None:
    """As PHP writes the parameters of a function without parameters. Regression: they were refused."""
    assert calls_with(target, parameters, "{}")
    assert not calls_with(target, parameters, '{"a": 1}')


def calls_with(target: Target, parameters: Any, arguments: str) -> bool:
    """Whether a required call may have ``arguments``."""
    tools = read_tool_choice([tool("f", parameters=parameters)], "required")
    assert tools is not None
    grammar = tools.grammar(FORMATS["json"], target.tokenizer)
    assert grammar is not None
    return Oracle(target, grammar).is_whole(tokens_of(f'[{{"name": "f", "arguments": {arguments}}}]'))
