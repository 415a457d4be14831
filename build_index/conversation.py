"""Reads conversations of JSON records: OpenAI's ``messages`` and ShareGPT's ``conversations``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suffolk.datastore.errors import InvalidArgument

Message = Mapping[str, Any]
"""A message: ``role``, ``content`` as text, and other keys that chat templates read, for example ``tool_calls``."""
FIELDS = ("messages", "conversations", "conversation")
TOOLS, SYSTEM = "tools", "system"
REASONING = ("reasoning", "thinking", "redacted_thinking")
"""Types of message parts that hold reasoning: of LangChain and Vercel's SDK, and of Mistral and Anthropic."""
OLDER_ROLES = {"function": "tool"}
SHAREGPT_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "function_call": "assistant",
    "function_response": "tool",
    "observation": "tool",
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in order, and the tools offered to the model, each as its JSON schema."""

    messages: tuple[Message, ...]
    tools: tuple[Any, ...] = ()


def find_conversation(record: Any, place: str) -> Conversation | None:
    """The conversation of a record; None if it has none of ``FIELDS``. Raises the errors of ``read_messages``."""
    field = next((name for name in FIELDS if isinstance(record, dict) and record.get(name) is not None), None)
    if field is None:
        return None
    return read_conversation(record, record[field], field, place)


def read_conversation(record: Mapping[str, Any], messages: object, field: str, place: str) -> Conversation:
    """The conversation of a record or request with ``messages``.

    A field ``system``, as in Anthropic's requests and LLaMA-Factory's data sets, is the first message. Raises the errors of
    ``read_messages``.
    """
    found = read_messages(messages, f"{place}: '{field}'")
    if system := _text(record.get(SYSTEM), f"{place}: '{SYSTEM}'"):
        found = ({"role": SYSTEM, "content": system}, *found)
    return Conversation(found, read_tools(record, place))


def read_tools(record: Mapping[str, Any], place: str) -> tuple[Any, ...]:
    """The tools of a record or request, as a list or as JSON text; empty if there are none.

    Raises InvalidArgument: they are no list.
    """
    return tuple(_list(record.get(TOOLS) or [], f"{place}: '{TOOLS}'"))


def read_messages(value: object, place: str) -> tuple[Message, ...]:
    """Messages of OpenAI's or ShareGPT's form, as a list or as JSON text.

    Text parts of a message are joined by line ends; parts of other kinds, such as images, are left out.

    Raises:
        InvalidArgument: ``value`` is not a list, or as ``read_message``.
    """
    return tuple(read_message(message, f"{place}, message {at}") for at, message in enumerate(_list(value, place)))


def read_message(value: object, place: str) -> Message:
    """One message. Raises InvalidArgument: it has no role, or its content or ``tool_calls`` are of a wrong type."""
    role = value.get("role") or value.get("from") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(role, str):
        raise InvalidArgument(f"{place} is not an object with a 'role'; write it as {{'role': ..., 'content': ...}}")
    message = {key: item for key, item in value.items() if key not in ("from", "value") and item is not None}
    message["role"] = OLDER_ROLES.get(role, role) if "role" in message else SHAREGPT_ROLES.get(role.lower(), role)
    message["content"] = _text(
        value["value"] if value.get("content") is None and "value" in value else value.get("content"), place
    )
    call = parsed(message.pop("function_call", None))  # the older form
    older = [] if call is None else [{"type": "function", "function": call}]
    if calls := _list(message.pop("tool_calls", None) or older, f"{place}: 'tool_calls'"):
        message["tool_calls"] = [_tool_call(call) for call in calls]  # no empty list: Llama's template refuses it
    return message


def _text(content: object, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return whole(content)
    if not isinstance(content, list) or not all(isinstance(part, dict | str) for part in content):
        raise InvalidArgument(f"{place} has content of type {type(content).__name__}; it must be a text or text parts")
    texts = (part if isinstance(part, str) else part.get("text") for part in content if not _is_reasoning(part))
    return "\n".join(whole(text) for text in texts if isinstance(text, str))


def _is_reasoning(part: dict[str, Any] | str) -> bool:
    """Whether a part holds reasoning, which is not in the prompt. It may have a field ``text``, as in Vercel's SDK."""
    return isinstance(part, dict) and part.get("type") in REASONING


def _tool_call(call: Any) -> Any:
    """Return a tool call whose arguments are an object, as chat templates expect.

    OpenAI's logs hold JSON in a string.
    """
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    return call | {"function": function | {"arguments": parsed(function["arguments"])}}  # models may write broken JSON


def _list(value: object, place: str) -> list[Any]:
    """``value``, or the list that its JSON text holds, because a table may store JSON as text. Items may be JSON text too."""
    found = parsed(value)
    if not isinstance(found, list):
        raise InvalidArgument(f"{place} is of type {type(value).__name__}; it must be a list of objects")
    return [parsed(each) for each in found]


def parsed(value: Any) -> Any:
    """The value that a JSON text holds; any other value unchanged."""
    try:
        return json.loads(value) if isinstance(value, str | bytes) else value
    except (ValueError, RecursionError):
        return value


def whole(text: str) -> str:
    """``text`` with U+FFFD for lone surrogates, which JSON allows and tokenizers refuse."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
