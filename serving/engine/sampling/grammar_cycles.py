"""Finds rules and schemas that refer only to each other, so that no text can match them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_RULE = re.compile(r"^[?!]*(\w+)(?:\.-?\d+)?[ \t]*:(?!:)(.*(?:\n[ \t]*\|.*)*)", re.MULTILINE)
_NAMES = re.compile(r"\s*\w+(?:\s*\|\s*\w+)*\s*")
_COMMENT = re.compile(r"//[^\n\"]*$|^[ \t]*#[^\n]*$", re.MULTILINE)
_DATA = ("const", "default", "enum", "example", "examples")
"""Keywords of a schema whose values are no schemas."""


def schema_cycle(schema: Mapping[str, Any]) -> str:
    """The references of a cycle, as "#/$defs/A -> #/$defs/A"; empty if there is none. A tree of children is no cycle.

    Raises RecursionError: the schema is nested too deeply.
    """
    sound: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if cycle := _cycle(value, schema, (), sound):
                return " -> ".join(cycle)
            waiting += [each for name, each in value.items() if name not in _DATA]
        elif isinstance(value, list):
            waiting += value
    return ""


def _cycle(value: Any, root: Mapping[str, Any], path: tuple[str, ...], sound: set[str]) -> tuple[str, ...]:
    """The cycle that every text of the schema ``value`` would have to pass through; ``path``: references passed so far."""
    if not isinstance(value, Mapping):
        return ()
    reference = value.get("$ref")
    if isinstance(reference, str) and reference not in sound:
        if reference in path:
            return (*path[path.index(reference) :], reference)
        if cycle := _cycle(_resolve(reference, root), root, (*path, reference), sound):
            return cycle
        sound.add(reference)
    parts = value.get("allOf")
    for part in parts if isinstance(parts, list) else ():
        if cycle := _cycle(part, root, path, sound):
            return cycle
    for name in ("anyOf", "oneOf"):
        parts = value.get(name)
        cycles = [_cycle(part, root, path, sound) for part in parts] if isinstance(parts, list) else []
        if cycles and all(cycles):
            return cycles[0]
    return ()


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference inside the schema points at; None for another, which the grammar library judges."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in filter(None, reference[1:].split("/")):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, Sequence) and not isinstance(found, str) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def rule_cycle(rules: str) -> str:
    """The names of a cycle of Lark rules, as "a -> b -> a"; empty if there is none."""
    bodies = dict(_RULE.findall(_COMMENT.sub("", rules)))
    names = {name: body.replace("|", " ").split() for name, body in bodies.items() if _NAMES.fullmatch(body)}
    while ended := [name for name, parts in names.items() if not all(part in names for part in parts)]:
        for name in ended:
            del names[name]
    path = list(names)[:1]
    while path and path[-1] not in path[:-1]:
        path.append(names[path[-1]][0])
    return " -> ".join(path[path.index(path[-1]) :]) if path else ""
