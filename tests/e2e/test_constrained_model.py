"""Tests a real model under a schema and with tools.

Set SUFFOLK_TEST_MODEL to the folder of an instruction-tuned model to run it.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

import jsonschema
import pytest

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.prompt import encode_chat
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.near_tie import first_difference
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.worker.openai.tool_calls import ToolCall, ToolCallParser
from suffolk.serving.worker.openai.tool_choice import read_tool_choice
from suffolk.serving.worker.openai.tool_format import find_format
from tests.support.drafters import eager_decoder

MODEL = os.environ.get("SUFFOLK_TEST_MODEL", "")
pytestmark = pytest.mark.skipif(not MODEL, reason="needs SUFFOLK_TEST_MODEL")
TIE = 0.2
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "population": {"type": "integer"},
        "rivers": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3},
    },
    "required": ["name", "population", "rivers"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 40}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.load(MODEL)


def text_of(target: Target, messages: list[tuple[str, str]], settings: SamplingSettings, tools: object = None) -> str:
    """The text of plain decoding. The text with drafts equals it, or first differs at a near-tie."""
    prompt = encode_chat(target, messages, tools)  # type: ignore[arg-type]
    runs = [
        eager_decoder(target, drafter, 16).generate(prompt, settings)
        for drafter in (None, PromptLookupDrafter(target.vocab_size))
    ]
    for run in runs:
        list(run)
    difference = first_difference(target, prompt, runs[0].tokens, runs[1].tokens, settings)
    assert difference is None or difference.gap < TIE
    assert runs[0].stats.finish in ("eos", "stop")
    return str(target.tokenizer.decode(runs[0].tokens, skip_special_tokens=True))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_fits_the_schema(target: Target, temperature: float) -> None:
    messages = [("user", f"Describe Vienna as JSON of this schema: {json.dumps(SCHEMA)}")]
    settings = SamplingSettings(200, temperature, seed=1, grammar=Grammar("json_schema", json.dumps(SCHEMA)))
    jsonschema.validate(json.loads(text_of(target, messages, settings)), SCHEMA)
    strings = replace(settings, grammar=Grammar("regex", "(Yes|No), because [a-z ]{5,40}[.]"))
    assert text_of(target, [("user", "Is Vienna large?")], strings).startswith(("Yes, because ", "No, because "))


def test_a_required_call_is_made(target: Target) -> None:
    tools = read_tool_choice([WEATHER], "required", is_parallel=False)
    assert tools is not None
    form = find_format(target.tokenizer.chat_template)
    grammar = tools.grammar(form, target.tokenizer)
    text = text_of(
        target, [("user", "What is the weather in Vienna?")], SamplingSettings(100, grammar=grammar), [WEATHER]
    )
    parser = ToolCallParser(form, tools.functions)
    [call] = parser.push(text) + parser.finish()
    assert isinstance(call, ToolCall)
    jsonschema.validate(json.loads(call.arguments), WEATHER["function"]["parameters"])  # type: ignore[index]
