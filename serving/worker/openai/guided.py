"""Grammars of the fields ``response_format``, ``structured_outputs``, ``guided_*``, ``grammar`` and ``json_schema``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.net.http_body import InvalidField, shown
from suffolk.serving.worker.openai.bodies import GenerationBody
from suffolk.serving.worker.openai.json_schema import schema_text
from suffolk.serving.worker.openai.known_fields import check_names

_KINDS = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "grammar": "grammar",
    "json_schema": "json",
}
"""Field of a request -> key of ``structured_outputs`` with the same meaning."""

_WRAPPER = ("name", "description", "schema", "strict")
_FORMAT = ("type", "json_schema", *_WRAPPER)
_UNREAD = {"text": ("json_schema", "schema"), "json_object": ("json_schema",)}
"""Type of a format -> fields with a schema that would have no effect."""


def read_guided(body: GenerationBody) -> Grammar | None:
    """The grammar of the fields, other than ``response_format``, that constrain a text; None if there are none.

    Raises InvalidArgument: several are given, or a value has another form.
    """
    given = {name: getattr(body, name) for name in _KINDS if getattr(body, name) is not None}
    outputs = body.structured_outputs.model_dump(exclude_none=True, by_alias=True) if body.structured_outputs else {}
    given |= {f"structured_outputs.{key}": value for key, value in outputs.items()}
    if body.structured_outputs is not None and not outputs:
        raise InvalidField("structured_outputs", ": give one of json, regex, choice, grammar, json_object")
    if not given:
        return None
    if body.response_format is not None and body.response_format.get("type") != "text":
        given["response_format"] = body.response_format
    if len(given) > 1:
        raise InvalidField(list(given)[-1], f": give one of {', '.join(given)}; each constrains the whole text")
    [(field, value)] = given.items()
    return _grammar(field, _KINDS.get(field, field.removeprefix("structured_outputs.")), value)


def _grammar(field: str, kind: str, value: Any) -> Grammar | None:
    if value == "":
        raise InvalidField(field, " is empty; give a schema, an expression or rules, or leave it out")
    if kind == "json":
        return Grammar("json_schema", schema_text(_schema(field, value), False, field), field)
    if kind == "json_object":
        return Grammar("json_object", field=field) if value else None
    if kind == "choice":
        return _choice(field, value)
    if kind == "regex":
        return Grammar("regex", value, field)
    return Grammar("gbnf" if "::=" in value else "lark", value, field)


def _schema(field: str, value: str | Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema as an object, or as its text."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise InvalidField(field, f": no JSON ({error}); give the schema as an object or its text") from None
    if not isinstance(found, dict):
        raise InvalidField(field, f" is {shown(found)}; it must be an object")
    return found


def _choice(field: str, texts: Sequence[str]) -> Grammar:
    if not texts or not all(texts):
        raise InvalidField(field, ": give one or more texts, none of them empty")
    return Grammar("lark", "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts), field)


def read_grammar(response_format: Mapping[str, Any] | None, name: str = "response_format") -> Grammar | None:
    """The grammar of {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema", "strict"}}; None for text.

    ``name``: the request's path of the field. As in llama.cpp, ``schema`` and ``strict`` may be in the same object as the type,
    instead of ``json_schema``.

    Raises InvalidArgument for any other value.
    """
    if response_format is None:
        return None
    kind = response_format.get("type")
    check_names(f"{name}.", response_format, _FORMAT)
    unread = _UNREAD.get(kind, ()) if isinstance(kind, str) else ()
    if given := next((each for each in unread if response_format.get(each)), ""):
        raise InvalidField(f"{name}.{given}", f": it needs the type json_schema, and the type is {kind}")
    if kind == "text":
        return None
    if kind == "json_object":
        own = response_format.get("schema")
        return Grammar("json_object", field=name) if own is None else _schema_grammar(own, f"{name}.schema", False)
    if kind != "json_schema":
        raise InvalidField("response_format.type", f" is {shown(kind)}; it must be text, json_object or json_schema")
    wrapper = response_format.get("json_schema")
    path = f"{name}.json_schema.schema" if name == "response_format" else f"{name}.schema"
    if wrapper is None and "schema" in response_format:
        wrapper, path = response_format, f"{name}.schema"
    elif given := next((each for each in ("schema", "strict") if response_format.get(each) is not None), ""):
        raise InvalidField(f"{name}.{given}", ": it has no effect here; give it inside json_schema")
    wrapper = wrapper if isinstance(wrapper, dict) else {}
    check_names(path.removesuffix("schema"), wrapper, _WRAPPER)
    if not isinstance(wrapper.get("strict"), bool | None):
        raise InvalidField(
            f"{path.removesuffix('schema')}strict", f" is {shown(wrapper['strict'])}; it must be true or false"
        )
    return _schema_grammar(wrapper.get("schema"), path, wrapper.get("strict") is True)


def _schema_grammar(schema: object, field: str, is_strict: bool) -> Grammar:
    if not isinstance(schema, dict):
        raise InvalidField(field, ": give the schema, a JSON object")
    return Grammar("json_schema", schema_text(schema, is_strict, field), field)
