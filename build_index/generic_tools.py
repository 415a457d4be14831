"""Converts tools and their calls to plain texts, for models whose chat template accepts no tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_PROMPT = (
    "These functions can be called. To call some, answer with a JSON list alone: "
    '[{{"name": FUNCTION, "arguments": {{ARGUMENT: VALUE}}}}]\n{functions}\n\n'
)


def lacks_tools(template: str, tools: Sequence[Any]) -> bool:
    """Whether a prompt of ``template`` would lack ``tools``, or the calls and results of tools in messages."""
    return "tools" not in template and (bool(tools) or "tool" not in template)


def generic_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Convert ``messages`` to roles that every template knows.

    If there are ``tools``, the first message begins with their description. The arguments of calls must be objects.
    """
    functions = "\n".join(json.dumps(_function(tool), ensure_ascii=False) for tool in tools)
    found = [_plain(message) for message in messages]
    if tools and found:
        found[0]["content"] = _PROMPT.format(functions=functions) + found[0]["content"]
    return found


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a message with calls or the role ``tool`` to plain text. Other messages are unchanged."""
    content = message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"The function returned: {content}"}
    if calls := message.get("tool_calls"):
        text = json.dumps([_function(call) for call in calls], ensure_ascii=False)
        content = f"{content}\n{text}" if content else text
    return {key: value for key, value in message.items() if key != "tool_calls"} | {"content": content}


def _function(tool: Any) -> Any:
    """The function of a tool or call. In logs, the object around the function may be missing."""
    return tool.get("function", tool) if isinstance(tool, Mapping) else tool
