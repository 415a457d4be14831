"""Schemas and rules that refer only to each other are found; recursion that ends is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from suffolk.serving.engine.sampling.grammar_cycles import rule_cycle, schema_cycle

A: dict[str, Any] = {"$ref": "#/$defs/A"}


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
