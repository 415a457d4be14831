"""Converts JSON schemas of requests for the grammar library."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import SchemaError, SchemaValidator, core_schema

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.sampling.grammar import RefusedGrammar
from suffolk.serving.decoding.engine.sampling.grammar_compiler import JSON_OPTIONS
from suffolk.serving.net.http_body import shown

_PARTS_IN_PLACE = ("allOf", "anyOf", "oneOf")
"""Keywords whose schemas are for the same value as the schema that has them."""
_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties", "if")
"""Keywords of an object that say what further properties it may have."""
_IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "additionalProperties")
"""Keywords beside which ``unevaluatedProperties`` differs from ``additionalProperties``."""
_DATA = ("const", "default", "enum", "example", "examples")
"""Keywords whose values are no schemas."""
_NULLS = ("const", "default")
"""Keywords that may be null."""
_BOUNDS = {"minimum": -1, "exclusiveMinimum": -1, "maximum": 1, "exclusiveMaximum": 1}
"""Keyword of a bound -> the sign of bounds that exclude nothing."""
_MOST = (1 << 63) - 1
_ANY_NAME: tuple[Any, ...] = (True, {}, {"type": "string"})
"""Values of ``propertyNames`` that every name fits, as Zod writes them."""
_ANYTHING: tuple[Any, ...] = ({}, True)
"""Schemas that every value fits."""
_UNREAD_PATTERN = re.compile(r"(?:^|[^\\])(?:\\\\)*(?:\(\?<?[=!]|\\[1-9])")
"""Look-around or a back-reference. The grammar library does not support them."""
_PARTS = re.compile(r"\\[pPux]\{[^}]{,60}\}|\\.|\[:\^?\w+:\]|\{\d+(?:,\d*)?\}|\{,|\[\^?|.", re.DOTALL)
"""The parts of a pattern: escapes, named classes, counts, opening brackets, and characters."""
_CLASS = re.compile(r"\\[dDwWsSpP]")
"""The beginning of an escape that stands for several characters."""
_MOST_PATTERNS = 200
"""The most ``patternProperties`` of a schema. The grammar library takes 0.3 s for 200, and 64 times as long for 800."""
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose values are schemas by name."""


def schema_text(schema: Mapping[str, Any], strict: bool, field: str) -> str:
    """``schema`` as JSON. An object that names its properties may have no other properties unless it allows them, because models
    would invent some.

    Unless ``strict`` is set, keywords and patterns that the grammar library does not enforce are ignored, as in OpenAI's API.
    Keywords that are null, as Go writes empty lists, count as absent.

    ``field``: the request's path of the schema, for messages.

    Raises RefusedGrammar if the schema's ``x-guidance`` is not an object, or an object declares a property twice.
    """
    try:
        _check_pattern_count(schema)
        given = _enforced({name: value for name, value in schema.items() if name != "nullable"}, strict)
        if not isinstance(given, dict):
            raise InvalidArgument("no value fits 'not' of a schema that every value fits; leave it out")
        own = given.get("x-guidance", {})
        if not isinstance(own, dict):
            raise InvalidArgument(f"x-guidance of a schema is {shown(own)}; it must be an object of options")
        given = _joined_unions(given, given)
        converted = _converted(given, _Whole(given, frozenset(_merged(given, given, set()))))
        return json.dumps({**converted, "x-guidance": {**JSON_OPTIONS, "lenient": not strict, **own}})
    except RecursionError:
        raise RefusedGrammar(field, ": a schema is nested too deeply; simplify it") from None
    except InvalidArgument as error:
        raise RefusedGrammar(field, f": {error}") from None


def _enforced(schema: Any, strict: bool) -> Any:
    """A copy that uses only keywords that the library knows. Keywords that are null are removed. Unless ``strict`` is set,
    patterns that the library cannot read are removed too."""
    if isinstance(schema, list):
        return [_enforced(each, strict) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("not") in _ANYTHING:
        return False  # Zod's undefined and never
    kept: dict[str, Any] = {}
    is_plain = not any(name in schema for name in _IN_PLACE)
    for name, value in schema.items():
        if name == "unevaluatedProperties" and is_plain:
            name = "additionalProperties"
        is_unread = name == "pattern" and isinstance(value, str) and bool(_UNREAD_PATTERN.search(value))
        if (name == "properties" and value is None) or (name in _NAMED and value == []):
            kept[name] = {}  # of functions without parameters; PHP writes {} as []
            continue
        if (value is None and name not in _NULLS) or (is_unread and not strict):
            continue
        if name == "propertyNames" and value in _ANY_NAME:
            continue
        if name in _BOUNDS and not strict and _is_far(value, _BOUNDS[name], schema.get("type")):
            continue
        if name == "pattern" and isinstance(value, str):
            kept[name] = _library_pattern(value)
        elif name == "patternProperties" and isinstance(value, Mapping):
            readable = [each for each in value if strict or not _UNREAD_PATTERN.search(each)]
            kept[name] = {_library_pattern(each): _enforced(value[each], strict) for each in readable}
        elif name in _NAMED and isinstance(value, Mapping):
            kept[name] = {key: _enforced(each, strict) for key, each in value.items()}
        else:
            kept[name] = value if name in _DATA else _enforced(value, strict)
    return _nullable(kept) if kept.pop("nullable", None) is True else kept


def _is_far(value: object, sign: int, kind: object) -> bool:
    """Whether a bound is that of integers of 64 bits, or further away. The library accepts such a bound for integers only as an
    upper bound."""
    return isinstance(value, int | float) and value * sign >= _MOST and (sign < 0 or kind != "integer")


def _library_pattern(pattern: str) -> str:
    """JavaScript's ``pattern`` in the library's form. Three signs are plain characters: a bracket inside of brackets, a hyphen
    after a class, and a brace that repeats nothing."""
    if "&&[" in pattern:  # an intersection, which JavaScript does not have
        return pattern
    parts: list[str] = []
    is_inside = False
    for part in _PARTS.findall(pattern):
        is_bracket = part in ("[", "[^")
        is_hyphen = part == "-" and bool(parts) and bool(_CLASS.match(parts[-1]))
        if (is_bracket or is_hyphen) if is_inside else part == "{":
            part = f"\\{part}"
        else:
            is_inside = is_bracket or (is_inside and part != "]")
        parts.append(part)
    return "".join(parts)


def _nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema``, changed so that null fits too. This is the meaning of ``nullable`` in OpenAPI 3.0."""
    if "type" not in schema or "const" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    values = schema.get("enum")
    enum = {"enum": [*values, None]} if isinstance(values, list) and None not in values else {}
    return {**schema, "type": types if "null" in types else [*types, "null"], **enum}


def _joined_unions(schema: Any, root: Any) -> Any:
    """A copy with ``anyOf`` instead of ``oneOf`` if no value fits two branches, because their types or constants differ.

    The grammar library sees this itself, unless a branch is a reference, or a constant that is not a text.
    """
    if isinstance(schema, list):
        return [_joined_unions(each, root) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    joined = {name: value if name in _DATA else _joined_unions(value, root) for name, value in schema.items()}
    branches = joined.get("oneOf")
    if isinstance(branches, list) and "anyOf" not in joined:
        targets = [_target(each, root) for each in branches]
        for facts in ([_types(each) for each in targets], [_constants(each) for each in targets]):
            if all(facts) and len(set().union(*facts)) == sum(map(len, facts)):
                return {"anyOf" if name == "oneOf" else name: value for name, value in joined.items()}
    return joined


def _target(schema: Any, root: Any) -> Any:
    """The schema that ``schema`` refers to if it is a reference to a definition, else itself."""
    place = str(schema.get("$ref", "")).split("/") if isinstance(schema, Mapping) else []
    named = root.get(place[1]) if len(place) == 3 and place[0] == "#" else None
    return named.get(place[2]) if isinstance(named, Mapping) else schema


def _types(schema: Any) -> set[str]:
    given = schema.get("type") if isinstance(schema, Mapping) else None
    names = given if isinstance(given, list) else [given]
    return {"number" if name == "integer" else name for name in names if isinstance(name, str)}


def _constants(schema: Any) -> set[str]:
    constant = schema.get("const") if isinstance(schema, Mapping) else None
    return {json.dumps(constant)} if isinstance(constant, int) else set()


@dataclass
class _Whole:
    """A whole schema while it is converted.

    Attributes:
        root: the schema.
        merged: paths of the schemas that are merged with others, and stay open.
        names: reference -> ``_property_names`` of its schema.
        unnamed: number of properties that may still be added to objects, because parts name them. At 0, objects with parts stay
            open.
    """

    root: Any
    merged: Collection[str]
    names: dict[str, dict[str, set[str]] | None] = field(default_factory=dict)
    unnamed: int = 10_000


def _converted(schema: Any, whole: _Whole, path: str = "#") -> Any:
    """A copy in which objects are closed. In a union with a discriminator, as pydantic makes unions, at most one branch fits, so
    ``oneOf`` becomes ``anyOf``."""
    if not isinstance(schema, Mapping):
        return schema
    _check_patterns(schema)
    converted = {name: _converted_value(name, value, whole, path) for name, value in schema.items()}
    if "discriminator" in converted and "oneOf" in converted and "anyOf" not in converted:
        converted["anyOf"] = converted.pop("oneOf")
        del converted["discriminator"]
    own = converted.get("properties")
    is_cheap = whole.unnamed or not any(name in schema for name in (*_PARTS_IN_PLACE, "$ref"))
    if path in whole.merged or not isinstance(own, Mapping) or not is_cheap:
        return converted
    names = _property_names(schema, whole)
    if names is None:
        return converted
    if (more := len(names.keys() - own.keys())) > whole.unnamed:
        whole.unnamed = 0
        return converted
    whole.unnamed -= more
    typed = {name: {"type": sorted(types)} if types else {} for name, types in names.items()}
    return {**converted, "properties": {**typed, **own}, "additionalProperties": False}


def _property_names(schema: Any, whole: _Whole) -> dict[str, set[str]] | None:
    """The properties that an object names or requires, also in its parts, with the types that they may have; no types for any
    value. None if it may have any other properties."""
    if not isinstance(schema, Mapping):
        return {}
    if any(name in schema for name in _OPEN):
        return None
    parts = [part for name in _PARTS_IN_PLACE for part in _list(schema.get(name))]
    found = [_own_names(schema), *(_property_names(part, whole) for part in parts)]
    if isinstance(reference := schema.get("$ref"), str):
        if reference not in whole.names:
            whole.names[reference] = {}  # for a reference in a circle
            target = _target(schema, whole.root)
            is_definition = target is not schema and isinstance(target, Mapping)
            whole.names[reference] = _property_names(target, whole) if is_definition else None
        found.append(whole.names[reference])
    names: dict[str, set[str]] = {}
    for each in found:
        if each is None:
            return None
        for name, types in each.items():
            known = names.get(name, types)
            names[name] = known | types if known and types else set()
    return names


def _own_names(schema: Mapping[str, Any]) -> dict[str, set[str]]:
    """``_property_names`` without those of the parts."""
    named = schema.get("properties")
    names = {name: _types(each) for name, each in named.items()} if isinstance(named, Mapping) else {}
    required = [name for name in _list(schema.get("required")) if isinstance(name, str) and name not in names]
    return names | {name: set() for name in required}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _check_pattern_count(schema: Any) -> None:
    """Raises InvalidArgument for more than ``_MOST_PATTERNS`` in all ``patternProperties`` together."""
    count = 0
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            patterns = each.get("patternProperties")
            count += len(patterns) if isinstance(patterns, Mapping) else 0
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    if count > _MOST_PATTERNS:
        raise InvalidArgument(
            f"a schema has {count} patternProperties; the limit is {_MOST_PATTERNS}; join some by '|'"
        )


def _check_patterns(schema: Mapping[str, Any]) -> None:
    """Raises InvalidArgument if ``patternProperties`` match a property too: the grammar would stop inside the property. Also if
    they are too large to be compared with the properties."""
    names, patterns = schema.get("properties"), schema.get("patternProperties")
    if not isinstance(names, Mapping) or not isinstance(patterns, Mapping) or not names:
        return
    readable = {each: found for each in patterns if (found := _linear(each)) is not None}
    if not readable:
        return
    together = _linear("|".join(f"(?:{each})" for each in readable))
    if together is None:
        raise InvalidArgument(
            f"a schema has properties beside {len(readable)} patternProperties that are too large together; use shorter patterns"
        )
    for name in names:
        if together.isinstance_python(name):
            pattern = next((each for each, found in readable.items() if found.isinstance_python(name)), "")
            raise InvalidArgument(
                f"a schema has the property {name!r}, and patternProperties {pattern!r} match it too; declare it once"
            )


def _linear(pattern: str) -> SchemaValidator | None:
    """A validator of the texts that ``pattern`` matches. Its time is linear in the text's length, while Python's own expressions
    may take exponential time. None if it cannot read the pattern; the grammar library then says what is wrong."""
    with suppress(SchemaError):
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    return None


def _converted_value(name: str, value: Any, whole: _Whole, path: str) -> Any:
    if name in _DATA:
        return value
    if name in _NAMED and isinstance(value, Mapping):
        return {key: _converted(each, whole, f"{path}/{name}/{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [_converted(each, whole, f"{path}/{name}/{at}") for at, each in enumerate(value)]
    return _converted(value, whole, f"{path}/{name}")


def _merged(schema: Any, root: Any, known: set[str], path: str = "#", is_part: bool = False) -> Iterator[str]:
    """The paths of the schemas that are merged with others for the same value: with the other parts in place, or with the
    properties beside them.

    ``known``: the references that were followed. ``is_part``: whether ``schema`` itself is merged.
    """
    if isinstance(schema, list):
        for at, each in enumerate(schema):
            yield from _merged(each, root, known, f"{path}/{at}")
    if not isinstance(schema, Mapping):
        return
    groups = [name for name in (*_PARTS_IN_PLACE, "$ref") if name in schema]
    is_alone = not is_part and len(groups) == 1
    is_part = is_part or "properties" in schema or len(groups) > 1 or len(_list(schema.get("allOf"))) > 1
    for name, value in schema.items():
        if name in _DATA:
            continue
        for at, part in enumerate(_list(value) if is_part and name in groups else ()):
            is_merged = name == "allOf" or not (is_alone and _names_all(part, schema))
            if is_merged:
                yield f"{path}/{name}/{at}"
            yield from _merged(part, root, known, f"{path}/{name}/{at}", is_merged)
        if not (is_part and name in groups):
            yield from _merged(value, root, known, f"{path}/{name}")
    reference = schema.get("$ref")
    if is_part and isinstance(reference, str) and reference not in known:
        known.add(reference)
        yield reference
        target = _target(schema, root)
        yield from _merged({} if target is schema else target, root, known, reference, True)


def _names_all(part: Any, schema: Mapping[str, Any]) -> bool:
    """Whether the object ``part`` names all properties of ``schema``. It can then be closed by itself."""
    named = part.get("properties") if isinstance(part, Mapping) else None
    return isinstance(named, Mapping) and named.keys() >= _own_names(schema).keys()
