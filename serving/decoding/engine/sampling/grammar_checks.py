"""Finds what the grammar library (llguidance) cannot handle: rules that lead only to each other, and too large numbers.

No text matches rules that lead only to each other. The library fails on them without a reason, or only when the text reaches
them. Some numbers make the library end the process.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

Rules = dict[str, list[list[str]]]
"""Rule -> its alternatives -> the rules with which an alternative must begin."""

_DATA = ("const", "default", "enum", "example", "examples")
"""Keywords whose values are no schemas."""
_DEFINITIONS = ("$defs", "definitions")
MAX_INTERSECTIONS = 64
"""The most ``&`` of Lark rules. The library takes less than a second for 100 of them, but minutes for 400."""
_SHOWN = 6
"""The most rules of a cycle that a message shows."""
_TOKEN = re.compile(
    r"""
    //.* | \#.*                                     # comments
    | "(?:\\.|[^"\\\n])*"? | /(?:\\.|[^/\\\n])+/? | <[^<>\n]*>  # texts, expressions and tokens
    | ^[ \t]*[?!]?(?P<rule>[A-Za-z_][\w-]*)(?:\[[^\]\n]*\])?[ \t]*:  # the head of a rule
    | ^[ \t]*(?P<directive>%(?:ignore|import|declare|llguidance)\b.*)
    | (?P<inline>%[a-z]+)
    | (?P<name>[A-Za-z_][\w-]*)
    | (?P<optional>[?*] | \{\s*[0,] | ~\s*0)
    | (?P<mark>[()\[\]|])
    """,
    re.MULTILINE | re.VERBOSE,
)


_LIMIT = 1 << 63
_VALUES = ("const", "enum")
_LOWEST = -_LIMIT + 512
"""The highest whole number that becomes -2^63 as a float."""
_UPPER = ("maximum", "exclusiveMaximum")


def schema_cycle(schema: Any) -> str:
    """The references of a cycle, as "#/$defs/A -> #/$defs/A"; empty if there is none. A recursive tree of children is allowed."""
    rules, references = _schema_rules(schema)
    found = [references[rule] for rule in _cycle(rules) if rule in references]
    return _shown(found[-1:] + found[:-1])  # the last one leads to the first rule


def rule_cycle(text: str) -> str:
    """The names of a cycle of Lark rules, as "a -> b -> a", or the references of a cycle in a schema inside. Empty without a
    cycle."""
    rules, schemas = _lark_rules(text)
    found = _shown([rule for rule in _cycle(rules) if "(" not in rule])
    return found or next(filter(None, map(schema_cycle, schemas)), "")


def inner_schemas(text: str) -> list[Any]:
    """The schemas in Lark rules."""
    return _lark_rules(text)[1] if "%json" in text else []


def intersections(text: str) -> int:
    """The number of ``&`` in Lark rules."""
    return _TOKEN.sub("", text).count("&")


def _shown(cycle: Sequence[str]) -> str:
    path = [*cycle, *cycle[:1]] if len(cycle) <= _SHOWN else [*cycle[:_SHOWN], "..."]
    return " -> ".join(path)


def _cycle(rules: Rules) -> list[str]:
    """The first cycle of rules that lead only to each other. Time and memory are linear in the size of ``rules``."""
    waiting: dict[str, list[tuple[str, set[str]]]] = defaultdict(list)
    ready: list[str] = []
    for rule, alternatives in rules.items():
        for needed in alternatives:
            missing = {each for each in needed if each in rules}
            for each in missing:
                waiting[each].append((rule, missing))
            if not missing:
                ready.append(rule)
    live: set[str] = set()
    while ready:
        if (rule := ready.pop()) in live:
            continue
        live.add(rule)
        for other, missing in waiting[rule]:
            missing.discard(rule)
            if not missing:
                ready.append(other)
    path: dict[str, None] = {}
    at = next((rule for rule in rules if rule not in live), None)
    while at is not None and at not in path:
        path[at] = None
        at = next(each for needed in rules[at] for each in needed if each in rules and each not in live)
    shown = list(path)
    return [] if at is None else shown[shown.index(at) :]


def _schema_rules(schema: Any) -> tuple[Rules, dict[str, str]]:
    """A rule for each schema, and the reference of each schema that has one. The key of both is the schema's ``_name``."""
    base = str(schema.get("$id", "")).rstrip("#") if isinstance(schema, Mapping) else ""
    anchors = {f"#{node['$anchor']}": node for node in _nodes(schema) if isinstance(node.get("$anchor"), str)}

    def target(reference: str) -> Any:
        pointer = unquote(reference.removeprefix(base))
        return anchors[pointer] if pointer in anchors else _target(schema, pointer)

    rules: Rules = {}
    references: dict[str, str] = {}
    for node in _nodes(schema, target):
        name, needed = _name(node), []
        if isinstance(reference := node.get("$ref"), str):
            references[name] = reference
            needed.append(_name(target(reference)))
        if isinstance(parts := node.get("allOf"), list):
            needed += map(_name, parts)
        for union in ("anyOf", "oneOf"):
            if isinstance(parts := node.get(union), list) and parts:
                needed.append(f"{name}/{union}")
                rules[f"{name}/{union}"] = [[_name(part)] for part in parts]
        rules[name] = [needed]
    return rules, references


def _name(node: Any) -> str:
    return str(id(node))


def _nodes(schema: Any, target: Callable[[str], Any] | None = None) -> Iterator[Mapping[str, Any]]:
    """Every object of a schema. ``target`` finds references. With it, definitions are yielded only if something refers
    to them."""
    waiting, seen = [schema], set[str]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            if _name(node) in seen:
                continue
            seen.add(_name(node))
            yield node
            left_out = _DATA + _DEFINITIONS if target and node is schema else _DATA
            waiting += [value for name, value in node.items() if name not in left_out]
            if target and isinstance(reference := node.get("$ref"), str):
                waiting.append(target(reference))
        elif isinstance(node, list):
            waiting += node


def _target(schema: Any, pointer: str) -> Any:
    """The value at a JSON pointer; None if there is none. The library reports a missing value."""
    found = schema
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        else:
            is_index = isinstance(found, list) and name.isdecimal() and len(name) < 9 and int(name) < len(found)
            found = found[int(name)] if is_index else None
    return found if pointer[:1] in ("", "#") else None


def _lark_rules(text: str) -> tuple[Rules, list[Any]]:
    """The rules of a grammar, and the schemas in them. A group is a rule whose name has a bracket.

    An alternative begins with its first item, unless this item is optional. After its first item, an alternative may name its own
    rule.
    """
    rules: Rules = {}
    schemas: list[Any] = []
    groups: list[tuple[str, int]] = [("", 0)]  # open groups: name of the rule, and items of its alternative so far
    at = 0
    while found := _TOKEN.search(text, at):
        at = found.end()
        kind, token = found.lastgroup, found[0]
        name, items = groups[-1]
        if kind == "rule":
            groups = [(found["rule"], 0)]
            rules.setdefault(found["rule"], []).append([])
        elif kind == "directive" or not name or token.startswith(("//", "#")):
            continue
        elif token == "|":
            rules[name].append([])
            groups[-1] = name, 0
        elif kind == "optional" or token in (")", "]"):
            if kind != "optional" and len(groups) > 1:
                groups.pop()
            if token != ")" and groups[-1][1] == 1:
                rules[groups[-1][0]][-1] = []
        else:
            inner = f"({at}" if kind == "mark" else token
            if not items and kind in ("mark", "name"):
                rules[name][-1] = [inner]
            groups[-1] = name, items + 1
            if kind == "mark":
                groups.append((inner, 0))
                rules[inner] = [[]]
            elif kind == "inline":
                value, at = _inline(text, at)
                schemas += [value] if token == "%json" else []
    return rules, schemas


def _inline(text: str, at: int) -> tuple[Any, int]:
    """The JSON at ``at``, and its end. None and the end of the text if there is no JSON: the library then refuses the whole
    grammar."""
    begin = next((place for place in range(at, len(text)) if not text[place].isspace()), at)
    try:
        return json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None, len(text)


def unheld_number(schema: Any) -> str:
    """The keyword and value of the first number that the library cannot hold, as "const 9007199254740993"; empty if
    there is none.

    The library rounds whole values to 53 bits. A whole number of at most about -2^63 ends the process.
    """
    waiting: list[tuple[str, bool, Any]] = [("", False, schema)]  # keyword, whether it is inside of a value, and value
    while waiting:
        keyword, inside, value = waiting.pop()
        inside = inside or keyword in _VALUES
        if isinstance(value, Mapping):
            waiting += [(name, inside, each) for name, each in value.items()]
        elif isinstance(value, list):
            waiting += [(keyword, inside, each) for each in value]
        elif (keyword in _UPPER and isinstance(value, int | float) and value <= _LOWEST) or (
            inside and isinstance(value, int) and (abs(value) >= _LIMIT or int(float(value)) != value)
        ):
            return f"{keyword} {str(value)[:40]}"
    return ""
