"""Messages about values of a wrong type have JSON's words, for each field of each body."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import BaseModel

from suffolk.serving.net.http_body import InvalidField, parse_body
from suffolk.serving.store.draft_service.http_live import AppendBody, DeleteBody
from suffolk.serving.store.draft_service.http_messages import DraftBody, OccurrencesBody
from suffolk.serving.worker.openai.bodies import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    PassagesBody,
    TokenizeBody,
)
from suffolk.serving.worker.openai.responses_body import ResponsesBody

VALUES = (None, True, 0, -2, 1.5, 1 << 80, "x", [], [None], [True], [-1], ["x"] * 2000, [[1.5]], [{}], {}, {"a": 1})
NEEDED: dict[str, Any] = {"messages": [], "prompt": "", "input": "", "tokens": [1], "documents": [], "contexts": []}
BODIES = (
    ChatBody,
    CompletionBody,
    ResponsesBody,
    TokenizeBody,
    DetokenizeBody,
    PassagesBody,
    DraftBody,
    OccurrencesBody,
    AppendBody,
    DeleteBody,
)
FOREIGN = re.compile(
    r"(?i:input should|valid (string|integer)|validation|unable to)|\b(None|True|False|dict|list|str|int)\b"
)
"""pydantic's and Python's words."""


def wrong(kind: type[BaseModel], body: dict[str, Any]) -> str:
    """The message about ``body``; empty if it is a ``kind``."""
    try:
        parse_body(kind, json.dumps(body).encode())
    except InvalidField as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", BODIES)
def test_wrong_values_are_described_in_words_of_json(kind: type[BaseModel]) -> None:
    """Regression: the messages were pydantic's, with Python's values: "n is True; input should be a valid integer"."""
    needed = {name: value for name, value in NEEDED.items() if name in kind.model_fields}
    for field in kind.model_fields:
        for value in VALUES:
            for given in (value, {"type": value, "name": value, "format": value, "effort": value}, [{"type": value}]):
                assert not FOREIGN.search(text := wrong(kind, needed | {field: given})), text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": True}, "temperature is true; it must be a number"),
        ({"n": 1.5}, "n is 1.5; it must be a whole number"),
        ({"n": 0}, "n is 0; it must be at least 1"),
        ({"stop": ["x"] * 20}, "stop has 20 entries; at most 16 are allowed"),
        ({"stop": {"a": None}}, 'stop is {"a": null}; it must be a string or an array'),
        (
            {"logit_bias": dict.fromkeys(map(str, range(2000)), 1)},
            "logit_bias has too many entries; at most 1024 are allowed",
        ),
        ({"messages": None}, "messages is null; it must be an array"),
        ({"messages": ["hi"]}, "messages[0] is 'hi'; it must be an object"),
        ({"messages": [{"role": None}]}, "messages[0].role is null; it must be a string"),
        (
            {"reasoning_format": "x"},
            "reasoning_format is 'x'; it must be 'none', 'auto', 'deepseek' or 'deepseek-legacy'",
        ),
        ({"stream": "yes"}, "stream is 'yes'; it must be true or false"),
    ],
)
def test_messages_about_wrong_values(fields: dict[str, Any], message: str) -> None:
    assert wrong(ChatBody, {"messages": []} | fields) == message


def test_the_bounds_of_logprobs_have_no_words_of_python() -> None:
    """Regression: "it must be between 0 and 20, or None (off)"."""
    assert wrong(CompletionBody, {"prompt": "", "logprobs": -1}) == "logprobs is -1; it must be at least 0"
