"""Tests predicted outputs and schemas through OpenAI's client."""

from __future__ import annotations

import json
from typing import Any

import openai

from suffolk.serving.worker.server import WorkerServer
from tests.support.http_requests import ask

USER = [{"role": "user", "content": "abc"}]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": [1, 2]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}


def test_json_schema(client: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    for seed in range(3):
        found = client.chat.completions.create(
            model="tiny",
            messages=USER,
            seed=seed,
            max_tokens=100,
            response_format=form,  # type: ignore[arg-type]
        )
        answer = json.loads(found.choices[0].message.content or "")
        assert (type(answer["ok"]), answer["size"] in (1, 2), found.choices[0].finish_reason) == (bool, True, "stop")


def test_a_schema_that_the_library_refuses(server: WorkerServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no such type"}}}
    status, _, reply = ask(server, "POST", "/v1/chat/completions", {"messages": USER, "response_format": form})
    assert (status, reply["error"]["type"]) == (400, "invalid_request_error")


def test_predictions_are_counted_only_if_they_are_sent(client: openai.OpenAI) -> None:
    fields: Any = {"model": "tiny", "messages": USER, "max_tokens": 40, "temperature": 0}
    plain = client.chat.completions.create(**fields)
    assert plain.usage is not None
    assert plain.usage.completion_tokens_details is None
    text = plain.choices[0].message.content
    for content in (text, [{"type": "text", "text": text}], "something else"):
        found = client.chat.completions.create(**fields, prediction={"type": "content", "content": content})
        assert found.choices[0].message.content == text
        assert found.usage is not None
        counts = found.usage.completion_tokens_details
        assert counts is not None
        assert counts.accepted_prediction_tokens is not None
        assert (counts.rejected_prediction_tokens or 0) > 0 if content == "something else" else True
