"""Tests which rules and references are found to lead only to each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import MAX_GRAMMAR, Grammar
from suffolk.serving.decoding.engine.sampling.grammar_checks import rule_cycle, schema_cycle
from suffolk.serving.decoding.engine.sampling.grammar_compiler import GrammarCompiler
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from tests.support.grammars import Oracle, ending_target, tokens_of

A = {"$ref": "#/$defs/A"}
B = {"$ref": "#/$defs/B"}
NODE = {"$ref": "#/$defs/a~1b"}


@pytest.fixture(scope="module")
def target() -> Target:
    return ending_target()


@pytest.mark.parametrize(
    ("schema", "cycle"),
    [
        (A | {"$defs": {"A": A}}, "#/$defs/A -> #/$defs/A"),
        (A | {"$defs": {"A": B, "B": A}}, "#/$defs/A -> #/$defs/B -> #/$defs/A"),
        ({"type": "object", "properties": {"x": A}, "required": ["x"], "$defs": {"A": A}}, "#/$defs/A -> #/$defs/A"),
        ({"type": "object", "properties": {"y": {}, "x": A}, "$defs": {"A": A}}, "#/$defs/A -> #/$defs/A"),
        ({"type": "array", "items": A, "$defs": {"A": A}}, "#/$defs/A -> #/$defs/A"),
        (A | {"$defs": {"A": {"anyOf": [A, A]}}}, "#/$defs/A -> #/$defs/A"),
        (A | {"$defs": {"A": {"allOf": [{"type": "string"}, A]}}}, "#/$defs/A -> #/$defs/A"),
        ({"$id": "http://x/y", "$ref": "http://x/y#"}, "http://x/y# -> http://x/y#"),
        ({"$ref": "#a", "$defs": {"A": {"$anchor": "a", "$ref": "#a"}}}, "#a -> #a"),
        ({"$ref": "#/anyOf/1", "anyOf": [{}, {"$ref": "#/anyOf/1"}]}, "#/anyOf/1 -> #/anyOf/1"),
        ({"$ref": "#/$defs/%41", "$defs": {"A": A}}, "#/$defs/A -> #/$defs/A"),
    ],
)
def test_circular_references_are_refused_before_there_is_text(
    target: Target, schema: dict[str, Any], cycle: str
) -> None:
    grammars = Grammar("json_schema", json.dumps(schema)), Grammar("lark", f'start: "x" %json {json.dumps(schema)}')
    for grammar in grammars:
        with pytest.raises(InvalidArgument, match="circle of references") as refusal:
            GrammarMatcher.of(target, grammar)
        assert f"refused: {cycle} is a circle" in str(refusal.value)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            NODE | {"$defs": {"a/b": {"type": "object", "properties": {"c": {"type": "array", "items": NODE}}}}},
            '{"c": [{"c": []}, {}]}',
        ),
        (A | {"$defs": {"A": {"anyOf": [{"type": "array", "items": A}, {"type": "null"}]}}}, "[[null], null]"),
        (A | {"$defs": {"A": {"anyOf": [A, {"type": "null"}]}}}, "null"),
        ({"type": "object", "properties": {"p": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}, '{"p": {"p": null}}'),
        ({"const": {"$ref": "#/const"}}, '{"$ref": "#/const"}'),
        ({"type": "null", "$defs": {"A": A}}, "null"),
        ({"type": "object", "properties": {"$ref": {"type": "null"}}}, '{"$ref": null}'),
    ],
)
def test_recursive_schemas_with_an_end_are_served(target: Target, schema: dict[str, Any], text: str) -> None:
    grammar = Grammar("json_schema", json.dumps(schema))
    GrammarMatcher.of(target, grammar)
    assert Oracle(target, grammar).is_whole(tokens_of(text))


@pytest.mark.parametrize(
    ("text", "cycle"),
    [
        ("start: a\na: a", "a -> a"),
        ("start: a\na: b\nb: a", "a -> b -> a"),
        ('start: "x" a\na: a', "a -> a"),
        ('start: "x" a?\na: a', "a -> a"),
        ('start: a\na: a "x" // | "y"', "a -> a"),
        ("start: a\na: (a | a b)\nb: /x/", "a -> a"),
        ("start: a\na[capture]: a{1,2}", "a -> a"),
    ],
)
def test_circular_rules_are_refused_before_there_is_text(target: Target, text: str, cycle: str) -> None:
    with pytest.raises(InvalidArgument, match="circle of references") as refusal:
        GrammarMatcher.of(target, Grammar("lark", text))
    assert f"refused: {cycle} is a circle" in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        'start: "x" start | "y"',
        'start: a\na: a "x" | "y"',
        'start: a\na: a? "x"',
        'start: a\na: (a "x")* "y"',
        'start: a\na: [a] "y"',
        'start: a\na: a{0,2} "y"',
        'start: a\na: "a: a" | /a: a/ | "// a" a',
        'start: a\n?a: b -> c\n | "x"\n!b: %json {"type": "null"} // c: c\n',
        'start: a-b\na-b: "x" | start',
    ],
)
def test_recursive_rules_with_an_end_are_served(target: Target, text: str) -> None:
    GrammarMatcher.of(target, Grammar("lark", text))


def test_long_grammars_are_read_in_linear_time() -> None:
    """In quadratic time, it would run into the time limit of a test."""
    for part in ("<", '"\\', "/\\", "%json ", "{ ", "~ ", "(", "a|", "a:\n", '"', "a ", "%json [", "[a"):
        rule_cycle("start: " + part * (MAX_GRAMMAR // len(part)))
    definitions = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}"} for at in range(9000)} | {"d9000": {"$ref": "#/$defs/d0"}}
    found = schema_cycle({"$ref": "#/$defs/d0", "$defs": definitions})
    assert found.startswith("#/$defs/d0 -> #/$defs/d1 -> ")
    assert found.endswith(" -> ...")


@pytest.mark.parametrize(
    ("schema", "cycle"),
    [
        ({"$ref": "#"}, "# -> #"),
        ({**A, "$defs": {"A": {"$ref": "#/$defs/B"}, "B": A}}, "#/$defs/A -> #/$defs/B -> #/$defs/A"),
        ({"items": A, "$defs": {"A": {"anyOf": [A]}}}, "#/$defs/A -> #/$defs/A"),
        ({"items": A, "$defs": {"A": {"allOf": [A, {"type": "integer"}]}}}, "#/$defs/A -> #/$defs/A"),
        ({**A, "$defs": {"A": {"anyOf": [A, {"type": "integer"}]}}}, ""),
        ({**A, "$defs": {"A": {"type": "object", "properties": {"children": {"type": "array", "items": A}}}}}, ""),
        ({"const": {"$ref": "#"}}, ""),
        ({"type": "object", "$defs": {"A": A}}, ""),  # nothing refers to it
        ({"properties": {"$defs": {"items": B}}, "$defs": {"A": A, "B": {"items": A}}}, "#/$defs/A -> #/$defs/A"),
        ({"$ref": "https://example.com/a"}, ""),
    ],
)
def test_cycles_of_schemas(schema: dict[str, Any], cycle: str) -> None:
    assert schema_cycle(schema) == cycle


@pytest.mark.parametrize(
    ("rules", "cycle"),
    [
        ("start: a\na: a", "a -> a"),
        ('start: "x" a\n?a: b // c\nb: a\n  | a', "a -> b -> a"),
        ('start: a\na: a | "y"', ""),
        ("start: a\na: b\nb: B\nB: /b/", ""),
        ('start: item\nitem: "[" item* "]"', ""),
    ],
)
def test_cycles_of_rules(rules: str, cycle: str) -> None:
    assert rule_cycle(rules) == cycle


def test_many_intersections_are_refused_at_once(target: Target) -> None:
    """The library takes minutes for 400, and nothing can interrupt it."""

    def rules(count: int) -> str:
        terms = [f"T{each}: /[a-z&]*{chr(97 + each % 26)}[a-z]*/ // & more" for each in range(count)]
        return "\n".join([f"start: T\nT: {' & '.join(f'T{each}' for each in range(count))}", *terms])

    GrammarCompiler.of(target).compile(Grammar("lark", rules(3)))
    with pytest.raises(InvalidArgument, match="has 399 times '&'; the limit is 64"):
        GrammarCompiler.of(target).compile(Grammar("lark", rules(400)))
