"""Commands of jq that convert conversations of other forms to JSON lines with ``messages``."""

from __future__ import annotations

import json
from typing import Any

from suffolk.build_index.conversation import FIELDS

_EACH = "(arrays[], objects)"
"""The records of a JSON array or of JSON lines."""
_CHATGPT = (
    f"{_EACH} | .mapping as $m | {{messages: [[.current_node // ($m | keys_unsorted | last) | recurse($m[.].parent // empty)]"
    ' | reverse[] | $m[.].message | select(.author.role == ("user", "assistant") and .content.parts)'
    ' | {role: .author.role, content: [.content.parts[] | strings] | join("\\n")}]}'
)
"""Selects the messages from the first to the current one. Replaced answers are in other branches of the tree."""
_CLAUDE = (
    f"{_EACH} | {{messages: [.chat_messages[]"
    ' | {role: (if .sender == "human" then "user" else .sender end), content: .text}]}'
)
_OTHERS = ("prompt", "rejected")
"""Fields of preference data that hold part of a conversation, or the worse answer."""


def file_command(values: list[Any], is_array: bool) -> str:
    """The filter of jq that converts a file of another program's conversations to ``messages``; empty if its form is unknown.

    Args:
        values: the first values of the file, or the first elements of its first array if ``is_array``.
    """
    if is_array and _is_conversation(values):
        return "{messages: .}"
    if is_array and values and all(map(_is_conversation, values)):
        return ".[] | {messages: .}"
    return _export_command(values[0]) if values else ""


def record_command(record: dict[str, Any], field: str) -> str:
    """The filter of jq for a file of records like ``record``. ``field``: the field to take if it holds messages."""
    if command := _export_command(record):
        return command
    names = [name for name, value in record.items() if name not in FIELDS and _is_conversation(value)]
    if not names:
        return ""
    name = field if field in names else next((each for each in names if each not in _OTHERS), names[0])
    path = f".[{json.dumps(name)}]"
    return f"{_EACH} | {{messages: {f'(.prompt + {path})' if 'prompt' in names and name != 'prompt' else path}}}"


def _export_command(record: Any) -> str:
    """The filter for a record exported from ChatGPT or Claude; empty for other records."""
    if not isinstance(record, dict):
        return ""
    nodes = record.get("mapping")
    if isinstance(nodes, dict) and any(isinstance(node, dict) and "message" in node for node in nodes.values()):
        return _CHATGPT
    return _CLAUDE if isinstance(record.get("chat_messages"), list) else ""


def _is_conversation(value: Any) -> bool:
    """Whether ``value`` is a list of messages of OpenAI's or ShareGPT's form."""
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(value.get(role), str) and content in value and isinstance(value[content], str | list | None)
        for role, content in (("role", "content"), ("from", "value"))
    )
