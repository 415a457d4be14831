"""Tests requests of frontends for many servers, which name one setting in several ways and send samplers that are off."""

from __future__ import annotations

from typing import Any

import pytest

from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LONG = "x" * 3990
"""A prompt that leaves room for a few tokens."""
KNOWN: dict[str, Any] = {"prompt": "abcabc", "max_tokens": 9, "repetition_penalty": 1.2, "seed": 7, "stop": ["q"]}
REPEATED = {"max_new_tokens": 9, "rep_pen": 1.2, "sampler_seed": 7, "stopping_strings": ["q"], "stop_sequence": ["q"]}
OFF: dict[str, Any] = {
    "typical": 1,
    "typical_p": 1,
    "tfs": 1,
    "top_a": 0,
    "nsigma": 0,
    "min_length": 0,
    "rep_pen_range": 0,
    "smoothing_factor": 0,
    "smoothing_curve": 2,
    "mirostat_mode": 0,
    "mirostat_tau": 6,
    "guidance_scale": 1,
    "dry_multiplier": 0,
    "dry_base": 2,
    "dry_sequence_breakers": '["\\n", ":"]',
    "xtc_probability": 0,
    "xtc_threshold": 0.2,
    "negative_prompt": "",
    "custom_token_bans": "",
    "banned_strings": [],
    "num_beams": 1,
    "ban_eos_token": False,
    "no_repeat_ngram_size": 0,
    "penalty_alpha": 0,
    "encoder_repetition_penalty": 1,
}


def test_settings_that_are_repeated_or_off_do_not_change_the_text(server: WorkerServer) -> None:
    expected = ask(server, "POST", TEXT, KNOWN)[2]["choices"]
    assert ask(server, "POST", TEXT, KNOWN | REPEATED | OFF)[2]["choices"] == expected


@pytest.mark.parametrize(
    ("path", "prompt", "name"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}, "max_tokens"),
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}, "max_completion_tokens"),
        (TEXT, {"prompt": LONG}, "max_tokens"),
        (TEXT, {"prompt": LONG}, "max_completion_tokens"),
        ("/v1/responses", {"input": LONG}, "max_output_tokens"),
    ],
)
def test_minus_1_tokens_are_as_many_as_fit(server: WorkerServer, path: str, prompt: dict[str, Any], name: str) -> None:
    """As clients of llama.cpp and LM Studio ask."""
    limit = ask(server, "POST", "/tokenize", {"prompt": "x"})[2]["max_model_len"]
    status, _, reply = ask(server, "POST", path, {**prompt, "ignore_eos": True, name: -1})
    assert status == 200, reply
    assert reply["usage"]["total_tokens"] == limit
    assert ask(server, "POST", path, {**prompt, name: -2})[0] == 400


@pytest.mark.parametrize(
    ("fields", "instead"),
    [
        ({"stopping_strings": ["x"]}, "use stop"),
        ({"rep_pen": 1.3}, "use repetition_penalty"),
        ({"sampler_seed": 8}, "use seed"),
        ({"banned_strings": ["x"]}, "use bad_words"),
        ({"ban_eos_token": True}, "use ignore_eos"),
        ({"grammar_string": 'root ::= "a"'}, "use grammar"),
        ({"mirostat_mode": 2}, "leave it out"),
        ({"typical": 0.5}, "leave it out"),
        ({"temperature_last": True}, "leave it out"),
        ({"top_a": 0.2}, "leave it out"),
        ({"no_repeat_ngram_size": 3}, "leave it out"),
        ({"guidance_scale": 1.5}, "leave it out"),
        ({"contents": [{"parts": [{"text": "a"}]}]}, "use prompt"),
        ({"systemInstruction": {"parts": [{"text": "a"}]}}, "use /v1/chat/completions"),
    ],
)
def test_settings_that_are_on_are_refused(server: WorkerServer, fields: dict[str, Any], instead: str) -> None:
    status, _, reply = ask(server, "POST", TEXT, KNOWN | fields)
    assert (status, reply["error"]["param"]) == (400, next(iter(fields))), reply
    assert instead in reply["error"]["message"]


def test_the_body_of_a_chat_or_completion_can_be_tokenized(server: WorkerServer) -> None:
    """Regression: fields of sampling were refused as misspelled ones."""
    settings = {"max_tokens": 9, "temperature": 0.5, "stop": ["q"], "n": 2, "stream": True, "seed": 7}
    for prompt in ({"messages": [{"role": "user", "content": "abc"}]}, {"prompt": "abc"}):
        expected = ask(server, "POST", "/tokenize", prompt)
        assert expected[0] == 200
        assert ask(server, "POST", "/tokenize", prompt | settings)[2] == expected[2]
    status, _, reply = ask(server, "POST", "/tokenize", {"prompt": "abc", "return_token_str": True})
    assert (status, reply["error"]["param"]) == (400, "return_token_str")
