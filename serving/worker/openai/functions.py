"""OpenAI's older names of tools, ``functions`` and ``function_call``. An answer has one call at most, in ``function_call``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.worker.openai.tool_choice import ToolChoice, named_choice, read_functions


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
    found = read_functions(functions, "functions[{}]")
    if isinstance(choice, Mapping):
        return named_choice(found, choice.get("name"), "function_call")
    if choice not in (None, "none", "auto"):
        raise InvalidArgument(Field("function_call"), f" is {choice!r}; it must be none, auto or {{'name': ...}}")
    return ToolChoice(found, is_required=False, is_single=True) if found and choice != "none" else None


def call_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` with calls of functions and their results in the form of tools. Other messages are unchanged.

    Raises InvalidArgument if a call has no name.
    """
    found = [dict(message) for message in messages]
    name = ""
    for at, message in enumerate(found):
        call = message.get("function_call")
        if isinstance(call, Mapping):
            if not isinstance(call.get("name"), str):
                raise InvalidArgument(Field("messages"), f"[{at}].function_call has no name; give name and arguments")
            name = f"call{at:05}"  # 9 characters, as Mistral's templates want
            del message["function_call"]
            message["tool_calls"] = [{"id": name, "type": "function", "function": dict(call)}]
        elif message["role"] == "function":
            message |= {"role": "tool", "tool_call_id": name}
    return found


def first_call(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``function_call`` for each part of the first call. A message has no place for further calls, so they are left out."""
    return [dict(call["function"]) for call in calls if call["index"] == 0]
