"""Tests response formats, and the grammars that they become."""

from __future__ import annotations

from typing import Any

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.sampling.grammar import Grammar
from suffolk.serving.openai.response_format import read_grammar
from tests.support.grammars import Oracle, ending_target, tokens_of


@pytest.fixture(scope="module")
def target() -> Target:
    return ending_target()


def test_response_formats_become_grammars(target: Target) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 3}}}, "required": ["a"]}
    assert read_grammar(None) is None
    assert read_grammar({"type": "text"}) is None
    assert read_grammar({"type": "json_object"}) == Grammar("json_object")
    loose = read_grammar({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert loose is not None
    assert Oracle(target, loose).is_whole(tokens_of('{"a": 3}'))
    strict = read_grammar({"type": "json_schema", "json_schema": {"schema": schema, "strict": True}})
    with pytest.raises(InvalidArgument, match=r'Unimplemented keys: \["not"\]'):
        target.match(strict)


@pytest.mark.parametrize(
    ("response_format", "message"),
    [
        ({"type": "xml"}, "response_format.type is 'xml'; it must be text, json_object or json_schema"),
        ({}, "response_format.type is None"),
        ({"type": "json_schema"}, "response_format.json_schema.schema: give the schema"),
        (
            {"type": "json_schema", "json_schema": {"schema": [1]}},
            "response_format.json_schema.schema: give the schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": {"x-guidance": 5}}},
            "x-guidance of a schema is of type int; it must be an object",
        ),
    ],
)
def test_wrong_response_formats_are_refused(response_format: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_grammar(response_format)
