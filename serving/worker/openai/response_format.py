"""``response_format`` of a request, as a grammar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker.openai.json_schema import schema_text


def read_grammar(response_format: Mapping[str, Any] | None, name: str = "response_format") -> Grammar | None:
    """The grammar of {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema", "strict"}}; None for text.

    ``name``: the request's path of the field. As in llama.cpp, ``json_object`` may have a ``schema``.

    Raises InvalidArgument for any other value.
    """
    kind = None if response_format is None else response_format.get("type")
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        own = response_format.get("schema")
        return Grammar("json_object") if own is None else _schema_grammar(own, f"{name}.schema", False)
    if kind != "json_schema":
        raise InvalidField("response_format.type", f" is {kind!r}; it must be text, json_object or json_schema")
    path = f"{name}.json_schema.schema" if name == "response_format" else f"{name}.schema"
    wrapper = response_format.get("json_schema")
    schema = wrapper.get("schema") if isinstance(wrapper, dict) else None
    is_strict = isinstance(wrapper, dict) and wrapper.get("strict") is True
    return _schema_grammar(schema, path, is_strict)


def _schema_grammar(schema: object, field: str, is_strict: bool) -> Grammar:
    if not isinstance(schema, dict):
        raise InvalidField(field, ": give the schema, a JSON object")
    return Grammar("json_schema", schema_text(schema, is_strict, field), field)
