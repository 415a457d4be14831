"""Tests the fields of vLLM and llama.cpp: those that act, those that are refused, and misspelled ones."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.worker.server import WorkerServer
from tests.support.grammars import END, ending_target, tokens_of
from tests.support.http_requests import ask
from tests.support.worker_server import TEMPLATE, working

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "abc"}]
CHATS: dict[str, Any] = {"messages": USER, "max_tokens": 40, "temperature": 0}
TEXTS: dict[str, Any] = {"prompt": "abcabc", "max_tokens": 40, "temperature": 0}


@pytest.fixture(scope="module")
def target() -> Target:
    target = ending_target()
    target.tokenizer.chat_template = TEMPLATE.replace("<assistant>", "") + (
        "{% if thinking %}!{% endif %}{{ reasoning_effort or '' }}{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return target


@pytest.fixture(scope="module")
def server(target: Target) -> Iterator[WorkerServer]:
    with working(target) as server:
        yield server


CIRCLE: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}},
    "$defs": {"A": {"$ref": "#/$defs/A"}},
}
"""The property is optional: the grammar library would fail only in the middle of a text."""
NOW = {"name": "now"}
TOOL = {"name": "f"}


def text_of(server: WorkerServer, **fields: Any) -> str:
    status, _, reply = ask(server, "POST", TEXT, TEXTS | fields)
    assert status == 200, reply
    return str(reply["choices"][0]["text"])


def prompt_of(server: WorkerServer, **fields: Any) -> str:
    """The prompt that the messages of a chat become, which a chat reads as well."""
    status, _, reply = ask(server, "POST", "/tokenize", {"messages": USER, **fields})
    assert status == 200, reply
    chat = ask(server, "POST", CHAT, {"messages": USER, "max_tokens": 1, **fields})[2]
    assert chat["usage"]["prompt_tokens"] == reply["count"]
    return str(ask(server, "POST", "/detokenize", {"tokens": reply["tokens"]})[2]["prompt"])


def test_fields_of_the_chat_template(server: WorkerServer) -> None:
    assert prompt_of(server) == "<user>abc<assistant>"
    assert prompt_of(server, add_generation_prompt=False) == "<user>abc"
    assert prompt_of(server, chat_template_kwargs={"thinking": True}) == "<user>abc!<assistant>"
    assert prompt_of(server, reasoning_effort="low") == "<user>abclow<assistant>"
    begun = [*USER, {"role": "assistant", "content": "So"}]
    assert prompt_of(server, messages=begun, continue_final_message=True) == "<user>abc<assistant>So"
    for fields, param in (
        ({"continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
        ({"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs"),
    ):
        assert ask(server, "POST", CHAT, CHATS | fields)[2]["error"]["param"] == param


def test_ends_of_a_text(server: WorkerServer) -> None:
    letters: dict[str, Any] = {"guided_regex": "[a-z]{40}"}
    plain = text_of(server, **letters)
    first = plain.index(plain[9])
    fields: dict[str, Any] = {**letters, "stop_token_ids": tokens_of(plain[9])}
    status, _, reply = ask(server, "POST", TEXT, TEXTS | fields)
    assert (status, reply["choices"][0]["finish_reason"]) == (200, "stop")
    assert reply["usage"]["completion_tokens"] == first + 1
    shown = reply["choices"][0]["text"]
    assert shown == plain[:first]
    assert text_of(server, **fields, include_stop_str_in_output=True) == plain[: first + 1]
    longer = ask(server, "POST", TEXT, TEXTS | fields | {"min_tokens": 30})[2]
    assert longer["usage"]["completion_tokens"] >= 30
    letter = plain[3]
    assert text_of(server, **letters, stop=letter, include_stop_str_in_output=True) == plain[: plain.index(letter) + 1]
    assert ask(server, "POST", TEXT, TEXTS | {"stop_token_ids": [257]})[2]["error"]["param"] == "stop_token_ids"
    assert ask(server, "POST", TEXT, TEXTS | {"min_tokens": 41})[2]["error"]["param"] == "min_tokens"


def test_words_that_may_not_come(server: WorkerServer) -> None:
    fields: dict[str, Any] = {"structured_outputs": {"regex": "[xyz]{3}"}, "temperature": 1}
    assert "x" in "".join(text_of(server, **fields, seed=seed) for seed in range(5))
    assert "x" not in "".join(text_of(server, **fields, seed=seed, bad_words=["x", "yyy"]) for seed in range(5))
    assert ask(server, "POST", TEXT, TEXTS | {"bad_words": [" "]})[2]["error"]["param"] == "bad_words"


def test_prompts_are_cut_from_the_left(server: WorkerServer) -> None:
    def count(**fields: Any) -> int:
        return int(ask(server, "POST", TEXT, TEXTS | {"max_tokens": 1} | fields)[2]["usage"]["prompt_tokens"])

    assert text_of(server, prompt="xyzabc", truncate_prompt_tokens=3) == text_of(server, prompt="abc")
    assert count(prompt="x" * 9000, truncate_prompt_tokens=5) == 5
    assert count(prompt="x" * 9000, truncate_prompt_tokens=-1) == 4095
    assert count(prompt="x" * 9000, truncate_prompt_tokens=-1, max_tokens=6) == 4090
    assert count(prompt="xyz", truncate_prompt_tokens=9000) == 3
    error = ask(server, "POST", TEXT, TEXTS | {"prompt": "x" * 9000, "truncate_prompt_tokens": 5000})[2]["error"]
    assert (error["param"], error["code"]) == ("truncate_prompt_tokens", "context_length_exceeded")
    assert "lower it to 4095 or less" in error["message"]
    chat = ask(server, "POST", CHAT, CHATS | {"truncate_prompt_tokens": 4})[2]
    assert chat["usage"]["prompt_tokens"] == 4


def test_special_tokens_are_shown_on_request(target: Target, server: WorkerServer) -> None:
    fields: dict[str, Any] = {"logit_bias": {str(END): 100}, "ignore_eos": True, "max_tokens": 3}
    end = target.tokenizer.decode([END])
    assert text_of(server, **fields) == ""
    assert text_of(server, **fields, skip_special_tokens=False) == end * 3
    assert text_of(server, **fields, stop=end * 2, skip_special_tokens=False) == ""
    assert ask(server, "POST", TEXT, TEXTS | fields | {"stop": end})[2]["choices"][0]["finish_reason"] == "stop"


SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
GBNF = 'root ::= "yes" | "no" | digit+\ndigit ::= [0-9]\n'


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"structured_outputs": {"choice": ["red (1)", "blue|2"]}}, r"red \(1\)|blue\|2"),
        ({"guided_choice": ["red", "blue"]}, "red|blue"),
        ({"structured_outputs": {"regex": "[0-9]{3}"}}, "[0-9]{3}"),
        ({"guided_regex": "(ab|cd)e"}, "abe|cde"),
        ({"structured_outputs": {"grammar": 'start: "x" | "yz"'}}, "x|yz"),
        ({"guided_grammar": GBNF}, "yes|no|[0-9]+"),
        ({"grammar": GBNF}, "yes|no|[0-9]+"),
        ({"structured_outputs": {"json": SCHEMA}}, None),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, None),
        ({"guided_json": SCHEMA}, None),
        ({"json_schema": SCHEMA}, None),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, None),
    ],
)
def test_fields_that_constrain_the_text(server: WorkerServer, fields: dict[str, Any], form: str | None) -> None:
    found = [text_of(server, **fields, seed=3, temperature=1, max_tokens=99)]
    found.append(ask(server, "POST", CHAT, CHATS | fields | {"max_tokens": 99})[2]["choices"][0]["message"]["content"])
    for text in found:
        if form is None:
            jsonschema.validate(json.loads(text), SCHEMA)
        else:
            assert re.fullmatch(form, text)


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"max_token": 5}, "max_token", "unknown field; did you mean max_tokens?"),
        ({"tempreature": 0.5}, "tempreature", "did you mean temperature?"),
        ({"tempreature": 0}, "tempreature", "did you mean temperature?"),
        ({"include_reasonin": False}, "include_reasonin", "did you mean include_reasoning?"),
        ({"reasoning_effort": "None"}, "reasoning_effort", "'none', 'minimal'"),
        ({"reasoning_format": "nnone"}, "reasoning_format", "'none', 'auto'"),
        ({"bad_words": ["a", "\n"]}, "bad_words", r"has '\n', which is no word; leave it out, or ban tokens with"),
        ({"max_new_token": 5}, "max_new_token", "max_new_tokens? It is not supported here; use max_tokens"),
        ({"content": "abc"}, "content", "not supported here; use prompt, or messages"),
        ({"stream": True, "stream_options": {"include_usge": True}}, "stream_options.include_usge", "include_usage"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "it needs stream: true"),
        ({"n_predict": 5}, "n_predict", "use max_tokens"),
        ({"use_beam_search": True}, "use_beam_search", "not supported here; leave it out"),
        ({"mirostat": 2}, "mirostat", "not supported here"),
        ({"modalities": ["text", "audio"]}, "modalities", "not supported here"),
        ({"structured_outputs": {"chioce": ["a"]}}, "structured_outputs.chioce", "unknown key"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "give one of guided_regex, guided_choice"),
        (
            {"guided_regex": "a", "response_format": {"type": "json_object"}},
            "response_format",
            "each constrains the whole text",
        ),
        ({"guided_json": "{"}, "guided_json", "no JSON"),
        ({"echo": True}, "echo", "not supported here"),
        ({"prompt": "abc"}, "prompt", "use messages, or /v1/completions"),
        ({"max_output_tokens": 5}, "max_output_tokens", "use max_tokens"),
        (
            {"guided_regex": "a", "tools": [{"type": "function", "function": {"name": "f"}}]},
            "tools",
            "takes a JSON schema, and guided_regex is none",
        ),
        ({"guided_choice": []}, "guided_choice", "give one or more texts"),
        ({"guided_grammar": 'root ::= "a'}, "guided_grammar", "guided_grammar is refused"),
        ({"guided_json": {"type": "objekt"}}, "guided_json", "Invalid type: objekt"),
        ({"structured_outputs": {"json": {"type": "objekt"}}}, "structured_outputs.json", "Invalid type: objekt"),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex", "is refused"),
        ({"guided_regex": ""}, "guided_regex", "is empty"),
        ({"guided_json": ""}, "guided_json", "is empty"),
        ({"structured_outputs": {"grammar": ""}}, "structured_outputs.grammar", "is empty"),
        ({"guided_grammar": "start: a\na: b\nb: a"}, "guided_grammar", "a -> b -> a is a circle"),
        ({"guided_grammar": 'start: "x" a\na: b\nb: a'}, "guided_grammar", "a -> b -> a is a circle"),
        ({"guided_json": CIRCLE}, "guided_json", "#/$defs/A -> #/$defs/A is a circle of references"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": CIRCLE}}},
            "response_format.json_schema.schema",
            "circle",
        ),
        (
            {"tools": [NOW, TOOL | {"parameters": CIRCLE}]},
            "tools[1].function.parameters",
            "of the function 'f' is refused: #",
        ),
        ({"tools": [NOW, TOOL | {"parameters": {"type": "objekt"}}]}, "tools[1].function.parameters", "'f' is refused"),
        ({"guided_whitespace_pattern": ""}, "guided_whitespace_pattern", "not supported here"),
        ({"guided_grammar": "root ::= a"}, "guided_grammar", "Rule 'a' not found"),
        ({"grammar": 'root ::= "a' + "\\"}, "grammar", "it ends in the middle of a text"),
        ({"structured_outputs": {}}, "structured_outputs", "give one of json, regex"),
        ({"guided_json_object": True}, "guided_json_object", "use structured_outputs with json_object"),
        ({"extra_body": {"guided_json": {}}}, "extra_body", "use its fields as fields of the request"),
        ({"extra_query": {"a": 1}}, "extra_query", "not supported here; leave it out"),
        ({"extra_headers": {"a": "b"}}, "extra_headers", "use them as headers of HTTP"),
        ({"stop": [2]}, "stop", "has token ids; give them as stop_token_ids"),
        ({"stop": 2}, "stop", "has token ids; give them as stop_token_ids"),
        ({"n_predict": 0}, "n_predict", "use max_tokens"),
        ({"parameters": {"max_new_tokens": 60}}, "parameters", "use its fields as fields of the request"),
        ({"options": {"num_predict": 3, "temperature": 0}}, "options", "use its fields as fields of the request"),
        ({"sampling_params": {"temperature": 0}}, "sampling_params", "use its fields as fields of the request"),
        ({"generation_config": {"temperature": 0}}, "generation_config", "use its fields as fields of the request"),
        ({"max_new_tokens": 60}, "max_new_tokens", "use max_tokens"),
        ({"regex": "[0-9]+"}, "regex", "use structured_outputs with regex"),
        ({"ebnf": 'root ::= "a"'}, "ebnf", "use grammar"),
        ({"format": "json"}, "format", "use response_format"),
        ({"do_sample": False}, "do_sample", "use temperature 0"),
        ({"stop_sequences": ["a"]}, "stop_sequences", "use stop"),
        ({"system": "You are brief."}, "system", "use a message of the role system"),
        ({"lora_path": "a"}, "lora_path", "leave it out"),
        ({"think": False}, "think", "use chat_template_kwargs with enable_thinking"),
        ({"thinking": {"type": "disabled"}}, "thinking", "use chat_template_kwargs with enable_thinking"),
        ({"reasoning": {"effort": "high"}}, "reasoning", "use reasoning_effort"),
        ({"random_seed": 1, "seed": 2}, "random_seed", "use seed"),
        ({"enable_search": True}, "enable_search", "leave it out"),
        ({"max_new_tokens": 60, "max_tokens": 61}, "max_new_tokens", "use max_tokens"),
        ({"dry_multiplier": 0.8, "dry_base": 2}, "dry_multiplier", "not supported here"),
        (
            {"messages": [*USER, {"role": "assistant", "content": "a", "prefix": True}]},
            "messages[1].prefix",
            "continue_final",
        ),
        ({"n_cmpl": 2}, "n_cmpl", "use n"),
        ({"samplers": []}, "samplers", "not supported here"),
        ({"parse_tool_calls": False}, "parse_tool_calls", "not supported here"),
        ({"thinking_token_budget": 0}, "thinking_token_budget", "not supported here"),
        ({"enable_thinking": False}, "enable_thinking", "use chat_template_kwargs"),
        ({"guided_decoding_backend": "outlines"}, "guided_decoding_backend", "not supported here"),
    ],
)
def test_fields_that_are_refused(server: WorkerServer, fields: dict[str, Any], param: str | None, text: str) -> None:
    if "parameters" in (tools := fields.get("tools", [{}]))[-1]:
        fields = {"tools": [{"type": "function", "function": each} for each in tools], "tool_choice": "required"}
    status, _, reply = ask(server, "POST", CHAT, CHATS | fields)
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert text in reply["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"top_logprobs": 5},
        {"tools": [{}]},
        {"messages": USER},
        {"functions": [{"name": "f"}]},
        {"add_special_tokens": False},
        {"chat_template_kwargs": {"thinking": True}},
        {"prompt_embeds": "AAAA"},
    ],
)
def test_fields_of_chats_are_refused_in_completions(server: WorkerServer, fields: dict[str, Any]) -> None:
    status, _, reply = ask(server, "POST", TEXT, TEXTS | fields)
    assert (status, reply["error"]["param"]) == (400, next(iter(fields))), reply


def test_fields_that_ask_for_nothing_are_ignored(server: WorkerServer, caplog: pytest.LogCaptureFixture) -> None:
    fields = {"user": "me", "store": True, "metadata": {"a": "b"}, "functions": None, "use_beam_search": False}
    fields |= {"length_penalty": 1.0, "modalities": ["text"], "mirostat": 0, "chat_id": "7"}
    # The settings of samplers that are off, and a field twice, once under another server's name.
    fields |= {
        "dry_multiplier": 0,
        "dry_sequence_breakers": '["\\n"]',
        "dry_base": 2,
        "mirostat_tau": 4,
        "xtc_threshold": 0.2,
    }
    fields |= {
        "max_new_tokens": 3,
        "max_tokens": 3,
        "repeat_penalty": 1.1,
        "repetition_penalty": 1.1,
        "top_logprobs": 0,
    }
    known = {"max_tokens": 3, "repetition_penalty": 1.1}
    expected = ask(server, "POST", CHAT, CHATS | known)[2]["choices"]
    with caplog.at_level(logging.INFO, "suffolk.worker"):
        for _ in range(2):
            assert ask(server, "POST", CHAT, CHATS | fields)[2]["choices"] == expected
    assert [each.message for each in caplog.records] == ["ChatCompletions: the field 'chat_id' is unknown, and ignored"]


def test_top_p_of_0_takes_the_likeliest_token(server: WorkerServer) -> None:
    assert text_of(server, top_p=0, temperature=1) == text_of(server)


def test_completions_take_the_newer_name_of_their_length(server: WorkerServer) -> None:
    fields = {"prompt": "abc", "max_completion_tokens": 3, "ignore_eos": True}
    assert ask(server, "POST", TEXT, fields)[2]["usage"]["completion_tokens"] == 3
    error = ask(server, "POST", TEXT, fields | {"max_completion_tokens": 1 << 30})[2]["error"]
    assert error["param"] == "max_completion_tokens"


def test_whole_floats_are_integers(server: WorkerServer) -> None:
    """Regression: 8.0 was refused, as some clients write numbers."""
    for path, fields, name in ((TEXT, TEXTS, "max_tokens"), (CHAT, CHATS, "max_tokens"), (CHAT, CHATS, "seed")):
        assert ask(server, "POST", path, fields | {name: 3.0})[0] == 200
        for odd in (8.5, float("nan"), float("inf"), "8", True):
            status, _, reply = ask(server, "POST", path, fields | {name: odd})
            assert (status, reply["error"]["param"]) == (400, name), odd
    whole = {"stop_token_ids": [5.0], "top_k": -1.0, "n": 1.0, "suffolk": {"max_nodes": 8.0}}
    assert ask(server, "POST", CHAT, CHATS | whole)[0] == 200
    status, _, reply = ask(server, "POST", TEXT, TEXTS | {"max_tokens": -2.0})
    assert (status, reply["error"]["param"]) == (400, "max_tokens")


def test_other_names_of_no_limit_act_in_completions(target: Target) -> None:
    """Regression: n_predict -1 left the default of 16 tokens. The worker has room for 64."""
    with working(target, capacity=64) as server:
        for name in ("max_tokens", "n_predict", "num_predict"):
            fields = {"prompt": "abc", "ignore_eos": True, name: -1}
            assert ask(server, "POST", TEXT, fields)[2]["usage"]["completion_tokens"] > 16, name
        limited = {"prompt": "abc", "ignore_eos": True, "max_tokens": 3, "n_predict": -1}
        assert ask(server, "POST", TEXT, limited)[2]["usage"]["completion_tokens"] == 3
