"""``tools`` and ``tool_choice``, or their older names ``functions`` and ``function_call`` of a request.

Reads the functions that may be called, and makes the grammar of required calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.net.http_body import InvalidField, shown
from suffolk.serving.worker.openai.json_schema import schema_text
from suffolk.serving.worker.openai.known_fields import check_names
from suffolk.serving.worker.openai.tool_format import ToolFormat

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_FIELDS = ("name", "description", "parameters", "strict")
_NO_OBJECTS = ("array", "boolean", "integer", "null", "number", "string")
"""Types that arguments cannot have."""
_OTHER_NAMES = {"input_schema": "parameters", "inputSchema": "parameters"}
"""Names of Anthropic and MCP -> OpenAI's names."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The functions that one request may call. Immutable.

    Attributes:
        functions: as in the request, by name.
        is_required: whether the answer must be a call.
        is_single: whether the answer may have one call at most. If calls are required, their grammar ensures this. Otherwise only
            the first call is kept.
        is_named: whether the request names the function.
    """

    functions: Mapping[str, Mapping[str, Any]]
    is_required: bool
    is_single: bool
    is_named: bool = False

    def grammar(
        self,
        tool_format: ToolFormat,
        tokenizer: Any,
        answer: Grammar | None = None,
        fields: Mapping[str, str] = MappingProxyType({}),
    ) -> Grammar | None:
        """The grammar of calls. Unless a call is required, it also allows the JSON ``answer``. None if any text is allowed.

        ``fields``: name of a function -> the request's path of its schema, for messages.

        Raises InvalidArgument if ``answer`` is not JSON.
        """
        if not self.is_required and answer is None:
            return None
        schemas = {name: _arguments(name, each, fields) for name, each in self.functions.items()}
        rules = _rules(self, tool_format, tokenizer, schemas)
        if self.is_required or answer is None:
            return Grammar("lark", "start: calls\n" + rules, "tools", tuple(schemas.values()))
        if answer.kind not in ("json_object", "json_schema"):
            raise InvalidArgument(
                Field("tools"),
                f": beside them, an answer takes a JSON schema, and {answer.field} is none; omit one of them",
            )
        schema = answer.text or schema_text({"type": "object"}, False, "tools")
        parts = (*schemas.values(), answer)
        return Grammar("lark", f"start: answer | calls\nanswer: %json {schema}\n{rules}", "tools", parts)


def read_tool_choice(
    tools: Sequence[Mapping[str, Any]] | None,
    choice: str | Mapping[str, Any] | None,
    is_parallel: bool = True,
    paths: Sequence[str] = (),
) -> ToolChoice | None:
    """The functions of ``tools`` and ``tool_choice``; None if no function may be called.

    Args:
        tools: [{"type": "function", "function": {"name", "description", "parameters", "strict"}}, ...].
        choice: none, auto, required, {"type": "function", "function": {"name": ...}}, or {"type": "allowed_tools",
            "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}; None for auto.
        is_parallel: ``parallel_tool_calls``, whether an answer may have several calls.
        paths: path of each function in the request; empty for a chat.

    Raises:
        InvalidArgument: ``tools`` or ``choice`` has another form, a name is used twice, or the chosen function does not
            exist.
    """
    paths = paths or [f"tools[{at}].function" for at in range(len(tools or ()))]
    functions = read_functions([_function(path, tool) for path, tool in zip(paths, tools or (), strict=True)], paths)
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        functions, choice = _read_allowed(choice, functions)
    if isinstance(choice, Mapping):
        check_names("tool_choice.", choice, ("type", "function", "allowed_tools"))
        named = choice.get("function")
        if choice.get("type", "function") != "function":
            raise InvalidArgument(
                Field("tool_choice"),
                f".type is {shown(choice.get('type'))}; it must be function or allowed_tools, as only functions can be called",
            )
        if not isinstance(named, Mapping):
            raise InvalidArgument(
                Field("tool_choice"), ".function is no object; give {'type': 'function', 'function': {'name': ...}}"
            )
        check_names("tool_choice.function.", named, ("name",))
        return named_choice(functions, named.get("name"), "tool_choice")
    if choice not in (None, "none", "auto", "required"):
        raise InvalidArgument(
            Field("tool_choice"), f" is {shown(choice)}; it must be none, auto, required or a function"
        )
    if choice == "required" and not functions:
        raise InvalidArgument(Field("tool_choice"), " is 'required'; give tools")
    if choice == "none" or not functions:
        return None
    return ToolChoice(functions, choice == "required", not is_parallel)


def named_choice(functions: Mapping[str, Mapping[str, Any]], name: object, field: str) -> ToolChoice:
    """The choice of one function. Raises InvalidArgument if ``functions`` does not have it. ``field``: the field of the
    request that names it."""
    known = ", ".join(functions) or "none"
    if not isinstance(name, str):
        raise InvalidArgument(Field(field), f" names no function; the functions of the request are {known}")
    if name not in functions:
        raise InvalidArgument(Field(field), f" names the function {name!r}; the functions of the request are {known}")
    return ToolChoice({name: functions[name]}, is_required=True, is_single=True, is_named=True)


def read_functions(given: Sequence[object], paths: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The functions of a request by name. ``paths``: path of each in the request.

    Raises InvalidArgument: there are too many functions, a function has another form, or a name is used twice.
    """
    if len(given) > MAX_TOOLS:
        raise InvalidField(paths[0].partition("[")[0], f" has {len(given)} entries; the limit is {MAX_TOOLS}")
    functions: dict[str, Mapping[str, Any]] = {}
    for field, function in zip(paths, given, strict=True):
        name, schema = (
            (function.get("name"), function.get("parameters")) if isinstance(function, Mapping) else (None, None)
        )
        if not isinstance(function, Mapping) or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArgument(
                Field(f"{field}.name"), f" is {shown(name)}; it must be 1 to 128 of a-z, A-Z, 0-9, _ . -"
            )
        if name in functions:
            raise InvalidArgument(Field(f"{field}.name"), f" is {name!r}, which an earlier function has; rename one")
        if schema not in (None, []) and not isinstance(schema, Mapping):
            raise InvalidArgument(Field(f"{field}.parameters"), " is no JSON object; give a schema")
        if isinstance(schema, Mapping) and schema.get("type") in _NO_OBJECTS:
            place = Field(f"{field}.parameters.type")
            raise InvalidArgument(place, f" is {schema['type']!r}; it must be object, as arguments have names")
        if not isinstance(function.get("strict"), bool | None):
            raise InvalidArgument(
                Field(f"{field}.strict"), f" is {shown(function['strict'])}; it must be true or false"
            )
        check_names(f"{field}.", function, _FIELDS, _OTHER_NAMES)
        functions[name] = function
    return functions


def _function(path: str, tool: Mapping[str, Any]) -> object:
    """The function of ``tool``. The type of ``tool`` may be missing, as in vLLM. ``path``: path of the function."""
    kind, function = tool.get("type", "function"), tool.get("function")
    entry = path.removesuffix(".function")
    check_names(f"{entry}.", tool, ("type", "function"))
    if kind != "function":
        raise InvalidArgument(
            Field(f"{entry}.type"), f" is {shown(kind)}; it must be function, as only functions can be called"
        )
    if not isinstance(function, Mapping):
        raise InvalidArgument(Field(path), " is no object; give {'name': ..., 'parameters': {...}}")
    return function


def _read_allowed(
    choice: Mapping[str, Any], functions: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], str]:
    """The allowed functions, and the mode of their choice."""
    allowed = choice.get("allowed_tools")
    mode, tools = (allowed.get("mode"), allowed.get("tools")) if isinstance(allowed, Mapping) else (None, None)
    if mode not in ("auto", "required") or not isinstance(tools, list):
        raise InvalidArgument(Field("tool_choice"), ".allowed_tools must have mode, auto or required, and tools")
    entries = [tool.get("function") if isinstance(tool, Mapping) else None for tool in tools]
    names: list[Any] = [entry.get("name") if isinstance(entry, Mapping) else None for entry in entries]
    if unknown := [name for name in names if not isinstance(name, str) or name not in functions]:
        raise InvalidArgument(
            Field("tool_choice"),
            f".allowed_tools names {shown(unknown[0])}; the functions of tools are {', '.join(functions) or 'none'}",
        )
    return {name: functions[name] for name in names}, str(mode)


def _rules(choice: ToolChoice, tool_format: ToolFormat, tokenizer: Any, schemas: Mapping[str, Grammar]) -> str:
    """Rules in llguidance's Lark syntax.

    Calls have the layout of common chat templates, on which models are trained.
    """
    begin, end = mark_rule(tool_format.begin, tokenizer), mark_rule(tool_format.end, tokenizer)
    if tool_format.is_listed:
        several = "" if choice.is_single else ' (", " call)*'
        start = f'{begin} "[" call{several} "]"'
    elif tool_format.end:
        marked = f'{begin} "\\n" call "\\n" {end}'
        start = marked if choice.is_single else f'{marked} ("\\n" {marked})*'
    else:
        start = "call" if choice.is_single else f'call ("{tool_format.separator} " call)*'
    calls = [_call(name, schema.text, tool_format.key) for name, schema in schemas.items()]
    rules = {"calls": start, "call": " | ".join(f"call_{at}" for at in range(len(calls)))}
    rules |= {f"call_{at}": call for at, call in enumerate(calls)}
    return "\n".join(f"{name}: {rule}" for name, rule in rules.items())


def _call(name: str, schema: str, key: str) -> str:
    """A rule for a call of the function ``name``. The schema is a separate grammar, so that its references stay valid."""
    head = json.dumps(json.dumps({"name": name, key: 0})[:-2])  # {"name": "...", "arguments":
    return f'{head} %json {schema} "}}"'


def _arguments(name: str, function: Mapping[str, Any], fields: Mapping[str, str]) -> Grammar:
    parameters = function.get("parameters") or {"type": "object", "properties": {}, "additionalProperties": False}
    if "$ref" not in parameters and not isinstance(parameters.get("type"), str):
        parameters = {**parameters, "type": "object"}  # without a type, and with several, other values would fit
    field = f"{fields.get(name, 'tools')} of the function {name!r}"
    return Grammar("json_schema", schema_text(parameters, function.get("strict") is True, field), field)


def mark_rule(mark: str, tokenizer: Any) -> str:
    """A mark as one token if the tokenizer has it, else as text; empty if there is no mark."""
    token = tokenizer.get_added_vocab().get(mark) if mark else None
    return f"<[{token}]>" if token is not None else json.dumps(mark) if mark else ""


def as_tools(functions: Sequence[Any]) -> list[dict[str, Any]]:
    """``functions`` in the form of ``tools``."""
    return [{"type": "function", "function": function} for function in functions]


def read_function_call(functions: Sequence[Any], choice: str | Mapping[str, Any] | None) -> ToolChoice | None:
    """The functions that the answer may call; None if there are none.

    Args:
        functions: [{"name", "description", "parameters"}, ...].
        choice: ``function_call``: none, auto or {"name": ...}; None for auto.

    Raises InvalidArgument: ``functions`` or ``choice`` has another form.
    """
    found = read_functions(functions, [f"functions[{at}]" for at in range(len(functions))])
    if isinstance(choice, Mapping):
        return named_choice(found, choice.get("name"), "function_call")
    if choice not in (None, "none", "auto"):
        raise InvalidArgument(Field("function_call"), f" is {shown(choice)}; it must be none, auto or {{'name': ...}}")
    return ToolChoice(found, is_required=False, is_single=True) if found and choice != "none" else None
