"""Tests response formats, and the grammars that they become."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from suffolk.serving.worker.openai.guided import read_grammar
from suffolk.serving.worker.openai.json_schema import schema_text
from tests.support.grammars import Oracle, ending_target, tokens_of


@pytest.fixture(scope="module")
def target() -> Target:
    return ending_target()


def test_response_formats_become_grammars(target: Target) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 3}}}, "required": ["a"]}
    assert read_grammar(None) is None
    assert read_grammar({"type": "text"}) is None
    anything = read_grammar({"type": "json_object"})
    assert anything == Grammar("json_object")
    assert anything.field == "response_format"
    loose = read_grammar({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert loose is not None
    assert Oracle(target, loose).is_whole(tokens_of('{"a": 3}'))
    strict = read_grammar({"type": "json_schema", "json_schema": {"schema": schema, "strict": True}})
    with pytest.raises(InvalidArgument, match=r'Unimplemented keys: \["not"\]'):
        GrammarMatcher.of(target, strict)


def accepts(target: Target, schema: dict[str, Any], text: str, strict: bool = True) -> bool:
    grammar = read_grammar({"type": "json_schema", "json_schema": {"schema": schema, "strict": strict}})
    assert grammar is not None
    GrammarMatcher.of(target, grammar)
    return Oracle(target, grammar).is_whole(tokens_of(text))


def test_a_property_that_a_pattern_matches_too_is_refused(target: Target) -> None:
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer"}},
        "patternProperties": {"^x": {"type": "integer"}},
    }
    assert accepts(target, schema, '{"score": 3, "x1": 4}')
    schema["patternProperties"] = {"^sco": {"type": "integer"}}
    for strict in (True, False):
        with pytest.raises(InvalidArgument, match="the property 'score', and patternProperties '.sco' match it too"):
            accepts(target, schema, "{}", strict)


def test_patterns_take_bounded_time() -> None:
    schema = {"type": "object", "properties": {"a" * 40 + "!": {}}, "patternProperties": {"^(a+)+$": {}}}
    schema_text(schema, True, "schema")  # Python's expressions would take hours
    patterns = {f"^b{number}$": {} for number in range(201)}
    for inner in (patterns, {"^x": {"patternProperties": {**patterns, "^y": {}}}}):
        with pytest.raises(InvalidArgument, match="20[13] patternProperties; the limit is 200; join some by '|'"):
            schema_text({"type": "object", "patternProperties": inner}, True, "schema")
    schema_text({"type": "string", "pattern": r"\x{" * 100_000}, True, "schema")
    large = {rf"^k{number}_\w{{1,64}}$": {} for number in range(4)}  # each can be read, but not all in one expression
    with pytest.raises(InvalidArgument, match="properties beside 4 patternProperties that are too large together"):
        schema_text({"type": "object", "properties": {"k0_a": {}}, "patternProperties": large}, True, "schema")


def test_objects_have_only_the_properties_that_they_name(target: Target) -> None:
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/B"}}, "required": ["a"], "$defs": {"B": inner}}
    assert accepts(target, schema, '{"a": {"b": 1}}')
    assert not accepts(target, schema, '{"a": {"b": 1, "c": 2}}')
    assert not accepts(target, schema, '{"a": {"b": 1}, "c": 2}')
    assert not accepts(target, schema, '{"a": {"b": 1}, "c": 2}', strict=False)
    assert accepts(target, schema | {"additionalProperties": True}, '{"a": {"b": 1}, "c": 2}')
    assert accepts(target, {"type": "object"}, '{"any": 1}')
    both = {"allOf": [{"$ref": "#/$defs/B"}, {"type": "object", "properties": {"c": {}}}], "$defs": {"B": inner}}
    assert accepts(target, both, '{"b": 1, "c": 2}')
    assert accepts(target, {"enum": [{"properties": {"a": 1}}]}, '{"properties": {"a": 1}}')


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


def test_a_discriminated_union_of_pydantic_is_one_of_its_branches(target: Target) -> None:
    schema = Owner.model_json_schema()
    assert "oneOf" in schema["properties"]["pet"]
    for strict in (True, False):
        assert accepts(target, schema, '{"pet": {"kind": "cat", "lives": 9}}', strict)
        assert accepts(target, schema, '{"pet": {"kind": "dog", "name": "x"}}', strict)
        assert not accepts(target, schema, '{"pet": {"kind": "cow", "lives": 9}}', strict)


def test_a_strict_union_whose_branches_differ_in_type_or_constant_is_one_of_them(target: Target) -> None:
    """As OpenAPI and Rust write them: with references, null and numbers."""
    place = {"type": "array", "items": {"type": "integer"}, "maxItems": 2}
    either = {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/Place"}, {"type": "integer", "maximum": 5}]}
    level = {"oneOf": [{"const": 1, "title": "Low"}, {"const": 2, "title": "High"}]}
    schema = {"type": "object", "properties": {"p": either, "l": level}, "required": ["p"], "$defs": {"Place": place}}
    for fits in ('{"p": null}', '{"p": [1, 2]}', '{"p": 5, "l": 2}'):
        assert accepts(target, schema, fits)
    for differs in ('{"p": "x"}', '{"p": 6}', '{"p": [1, 2, 3]}', '{"p": 5, "l": 3}'):
        assert not accepts(target, schema, differs)
    with pytest.raises(InvalidArgument, match="oneOf"):
        accepts(target, {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "1")


@pytest.mark.parametrize(
    "keyword", [{"uniqueItems": True}, {"contains": {"const": 1}}, {"if": {}, "then": {}}, {"not": {"const": 1}}]
)
def test_strict_schemas_may_not_have_keywords_that_are_not_enforced(target: Target, keyword: dict[str, Any]) -> None:
    nested = {"type": "object", "properties": {"a": {"type": "array", **keyword}}}
    with pytest.raises(InvalidArgument, match="Unimplemented keys"):
        accepts(target, nested, "{}")
    accepts(target, nested, "{}", strict=False)


@pytest.mark.parametrize("strict", [True, False])
def test_keywords_that_are_null_count_as_absent(target: Target, strict: bool) -> None:
    """As Go's clients write empty lists and maps."""
    nothing = {"required": None, "enum": None, "additionalProperties": None, "anyOf": None, "x-guidance": None}
    schema = {"type": "object", "properties": {"a": {"type": "null", "const": None, "items": None}}, **nothing}
    assert accepts(target, schema, '{"a": null}', strict)
    assert not accepts(target, schema, '{"b": null}', strict)
    empty = {"type": "object", "properties": None}
    assert accepts(target, empty, "{}", strict)
    assert not accepts(target, empty, '{"a": 1}', strict)


@pytest.mark.parametrize("strict", [True, False])
def test_nullable_fields_may_be_null(target: Target, strict: bool) -> None:
    """Regression: ``nullable`` of OpenAPI 3.0, as Zod 3 writes it, was ignored."""
    names: dict[str, Any] = {
        "a": {"type": "string", "nullable": True},
        "b": {"type": "integer", "enum": [1], "nullable": True},
        "c": {"$ref": "#/$defs/nullable", "nullable": True},
        "d": {"type": ["integer", "null"], "nullable": True},
        "e": {"type": "integer", "nullable": False},
        "nullable": {"const": 3, "type": "integer", "nullable": True},
    }
    schema = {"type": "object", "properties": names, "required": [*names], "$defs": {"nullable": {"type": "boolean"}}}
    for root in ({}, {"nullable": True}):
        assert accepts(target, schema | root, '{"a":"x","b":1,"c":true,"d":2,"e":3,"nullable":3}', strict)
        nulls = '{"a":null,"b":null,"c":null,"d":null,"e":3,"nullable":null}'
        assert accepts(target, schema | root, nulls, strict)
        assert not accepts(target, schema | root, nulls.replace("3", "null"), strict)


@pytest.mark.parametrize("strict", [True, False])
def test_branches_of_no_value_are_left_out(target: Target, strict: bool) -> None:
    """Regression: ``{"not": {}}``, as Zod 3 writes undefined, was refused under strict."""
    optional = {"anyOf": [{"anyOf": [{"not": {}}, {"type": "number"}]}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"a": optional, "b": {"not": {}}}, "required": ["a"]}
    assert accepts(target, schema, '{"a": 3}', strict)
    assert accepts(target, schema, '{"a": null}', strict)
    assert not accepts(target, schema, '{"a": "x"}', strict)
    assert not accepts(target, schema, '{"a": 3, "b": 1}', strict)
    with pytest.raises(InvalidArgument, match="no value fits 'not' of a schema"):
        accepts(target, {"not": {}}, "1", strict)


@pytest.mark.parametrize("names", [{"type": "string"}, {}, True])
def test_names_of_properties_that_may_be_any_ask_for_nothing(target: Target, names: object) -> None:
    """As Zod describes a record."""
    schema = {"type": "object", "propertyNames": names, "additionalProperties": {"type": "integer"}}
    assert accepts(target, schema, '{"a": 1}', strict=True)
    assert not accepts(target, schema, '{"a": "b"}', strict=True)
    with pytest.raises(InvalidArgument, match="propertyNames"):
        accepts(target, schema | {"propertyNames": {"maxLength": 2}}, '{"a": 1}', strict=True)


def test_the_limits_of_64_bits_are_no_hindrance_unless_strict(target: Target) -> None:
    schema = {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1}
    assert accepts(target, schema, "-5", strict=False)
    with pytest.raises(InvalidArgument, match="integer range"):
        accepts(target, schema, "-5", strict=True)


def test_numbers_may_have_the_limits_of_integers_unless_strict(target: Target) -> None:
    """Regression: bounds from above were refused."""
    for most in (1 << 63, (1 << 64) - 1, 1.8e308):
        schema = {"type": "number", "minimum": 0, "maximum": most}
        assert accepts(target, schema, "5.5", strict=False)
        assert not accepts(target, schema, "-5.5", strict=False)
    with pytest.raises(InvalidArgument, match="float range"):
        accepts(target, {"type": "number", "maximum": 1 << 63}, "5.5", strict=True)
    assert not accepts(target, {"type": "integer", "maximum": (1 << 63) - 1}, "99999999999999999999", strict=False)


E_MAIL, PHONE = ({"properties": {name: {"type": "string"}}, "required": [name]} for name in ("mail", "phone"))
DEFINITIONS = {"Mail": {"type": "object", **E_MAIL}, "Either": {"anyOf": [{"$ref": "#/$defs/Mail"}, PHONE]}}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "parts",
    [
        {"anyOf": [E_MAIL, PHONE]},
        {"anyOf": [{"$ref": "#/$defs/Mail"}, PHONE]},
        {"allOf": [{"$ref": "#/$defs/Either"}]},
        {"allOf": [{}, {"anyOf": [E_MAIL, PHONE]}]},
        {"$ref": "#/$defs/Either"},
    ],
)
def test_properties_beside_a_union_are_those_of_each_branch(
    target: Target, strict: bool, parts: dict[str, Any]
) -> None:
    """Regression: a required property beside the union was refused, and another one could not be used."""
    properties = {"id": {"type": "integer"}, "name": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": ["id"], **parts, "$defs": DEFINITIONS}
    texts = ['{"id": 1, "mail": "a"}', '{"id": 1, "name": "a", "phone": "b"}', '{"id": 1, "mail": 2}', '{"id": 1}']
    assert [accepts(target, schema, text, strict) for text in texts] == [True, True, False, False]
    for text in ('{"id": 1, "mail": "a", "other": 1}', '{"id": 1, "mail": 2, "phone": "a"}'):
        assert not accepts(target, schema, text, strict)


def test_a_branch_that_names_all_properties_has_no_others(target: Target) -> None:
    branches = [{"properties": {"a": {"const": number}, name: {}}} for number, name in enumerate("bc")]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "anyOf": branches}
    assert accepts(target, schema, '{"a": 1, "c": 2}')
    assert not accepts(target, schema, '{"a": 1, "b": 2}')


def test_a_type_that_is_no_name_is_refused(target: Target) -> None:
    """Regression: it was an internal error beside ``nullable``."""
    with pytest.raises(InvalidArgument, match="is refused"):
        accepts(target, {"type": "array", "items": {"type": [{}], "nullable": True}}, "[]")


@pytest.mark.parametrize("value", [False, {"not": {}}])
@pytest.mark.parametrize("strict", [False, True])
def test_unevaluated_properties_are_additional_ones(target: Target, strict: bool, value: Any) -> None:
    """Regression: the keyword, with which TypeSpec seals objects, let an object have further properties."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "unevaluatedProperties": value}
    assert accepts(target, schema, '{"a": 1}', strict)
    assert not accepts(target, schema, '{"a": 1, "b": 2}', strict)
    assert accepts(target, schema | {"unevaluatedProperties": {"type": "null"}}, '{"a": 1, "b": null}', strict)


@pytest.mark.parametrize("union", ["anyOf", "allOf"])
@pytest.mark.parametrize("strict", [False, True])
def test_branches_that_only_require_properties_name_none(target: Target, strict: bool, union: str) -> None:
    """Regression: models invented further arguments. Home Assistant's tool for a timer requires one of its units like this."""
    schema = {"type": "object", "properties": dict.fromkeys("abc", {"type": "integer"})}
    timer = schema | {union: [{"required": ["a"]}, {"required": ["a", "b"]}]}
    texts = ['{"a": 1}', '{"a": 1, "b": 1}', '{"b": 1, "c": 1}', '{"a": 1, "b": 1, "d": 1}']
    kept = [accepts(target, timer, text, strict) for text in texts]
    assert kept == [union == "anyOf", True, False, False]
    other = schema | {union: [{"required": ["d"]}, {"required": ["d", "a"]}]}
    assert accepts(target, other, '{"a": 1, "d": 1}', strict)


@pytest.mark.parametrize("strict", [False, True])
def test_an_object_has_what_it_requires_without_a_name(target: Target, strict: bool) -> None:
    """Regression: the schema was refused, as no property beside the named ones was allowed."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"]}
    assert accepts(target, schema, '{"a": 1, "b": [2]}', strict)
    for text in ('{"a": 1}', '{"a": 1, "b": 2, "c": 3}'):
        assert not accepts(target, schema, text, strict)
    with pytest.raises(InvalidArgument, match="required property 'b'"):
        accepts(target, schema | {"additionalProperties": False}, '{"a": 1}', strict)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^[\w-.]+$", "a-b.c", "a+b"),
        (r"^[^\s-_]{3}$", "abc", "a-b"),
        (r"^[^[\]]+$", "ab", "a[b"),
        (r"^[[]{2}$", "[[", "[]"),
        (r"^\${[a-z]+}$", "${ab}", "$ab"),
        (r"^{a}$", "{a}", "a"),
        (r"^[\p{L}-]{2}$", "a-", "a1"),
        (r"^\u{61}{2}$", "aa", "a"),
        (r"^[[:alpha:]]$", "a", "1"),
        (r"^[a-z&&[^b]]$", "a", "b"),
        ("", "a", None),
    ],
)
def test_patterns_of_javascript_are_enforced(target: Target, pattern: str, good: str, bad: str | None) -> None:
    """Regression: some have another meaning in the grammar library, and were refused."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert accepts(target, schema, json.dumps({"a": good}))
    assert bad is None or not accepts(target, schema, json.dumps({"a": bad}))


def test_patterns_of_names_are_read_like_those_of_texts(target: Target) -> None:
    """Regression: they were refused."""
    number = {"type": "integer"}
    schema = {"type": "object", "patternProperties": {r"^[^\s-_]{3}$": number, "^(?!x)[a-z]$": number}}
    closed = schema | {"additionalProperties": False}
    assert accepts(target, closed, '{"abc": 1}', strict=False)
    assert not accepts(target, closed, '{"a-c": 1}', strict=False)
    assert accepts(target, schema, '{"y": 1}', strict=False)
    with pytest.raises(InvalidArgument, match="regex parse error"):
        accepts(target, schema, '{"y": 1}', strict=True)


@pytest.mark.parametrize("pattern", ["^(?!x)[a-z]+$", "^[a-z]+(?<=z)$", r"^([a-z])\1$", r"^\\(?=z)"])
def test_patterns_that_cannot_be_read_are_left_out_unless_strict(target: Target, pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert accepts(target, schema, '{"a": "zz"}', strict=False)
    with pytest.raises(InvalidArgument, match="regex parse error"):
        accepts(target, schema, '{"a": "zz"}', strict=True)


def test_patterns_with_escaped_marks_are_enforced(target: Target) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^\(?=\\1$"}}}
    assert accepts(target, schema, r'{"a": "(=\\1"}', strict=False)
    assert not accepts(target, schema, '{"a": "zz"}', strict=False)


@pytest.mark.parametrize(
    ("response_format", "message"),
    [
        ({"type": "xml"}, "response_format.type is 'xml'; it must be text, json_object or json_schema"),
        ({}, "response_format.type is null"),
        ({"type": "json_schema"}, "response_format.json_schema.schema: give the schema"),
        (
            {"type": "json_schema", "json_schema": {"schema": [1]}},
            "response_format.json_schema.schema: give the schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": {"x-guidance": 5}}},
            "x-guidance of a schema is 5; it must be an object",
        ),
    ],
)
def test_wrong_response_formats_are_refused(response_format: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        read_grammar(response_format)


def test_white_space_between_parts_is_bounded(target: Target) -> None:
    """Greedy decoding of a small model repeats line ends."""
    schema = {"type": "object", "properties": {"a": {"const": {"x": [1, "y"]}}}, "required": ["a"]}
    value = {"a": {"x": [1, "y"]}}
    for indent in (None, 1, 4, 8):
        assert accepts(target, schema, json.dumps(value, indent=indent))
    assert accepts(target, schema, '{"a":{"x":[1,"y"]}}')
    assert accepts(target, schema, '{\r\n\r\n  "a" : { "x" : [ 1 , "y" ] }\t}')
    assert not accepts(target, schema, '{\n\n\n"a": {"x": [1, "y"]}}')
    assert not accepts(target, schema, '{"a": {"x": [1,\n\n\n"y"]}}')
    assert not accepts(target, schema, '{"a": ' + " " * 50 + '{"x": [1, "y"]}}')


def test_a_schema_may_stand_beside_the_type(target: Target) -> None:
    """As in llama.cpp, and in requests to /v1/responses."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    wrapped = read_grammar({"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
    assert read_grammar({"type": "json_schema", "name": "x", "schema": schema, "strict": True}) == wrapped
    with pytest.raises(InvalidArgument, match=r"^response_format.schema: give the schema, a JSON object"):
        read_grammar({"type": "json_schema", "schema": "x"})
    for beside in ({"schema": {"type": "array"}}, {"strict": True}):  # regression: it was ignored
        with pytest.raises(InvalidArgument, match="it has no effect here; give it inside json_schema"):
            read_grammar({"type": "json_schema", "json_schema": {"schema": schema}} | beside)
