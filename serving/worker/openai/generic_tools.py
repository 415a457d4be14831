"""Tools for models whose chat template takes none: the messages describe them, and hold calls and results as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_PROMPT = (
    "These functions can be called. To call some, answer with a JSON list alone: "
    '[{{"name": FUNCTION, "arguments": {{ARGUMENT: VALUE}}}}]\n{functions}\n\n'
)


def takes_tools(tokenizer: Any) -> bool:
    """Whether the chat template of ``tokenizer`` takes tools."""
    return "tools" in str(getattr(tokenizer, "chat_template", ""))


def generic_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` of roles that every template knows. The first one begins with a description of ``tools``, if there are some.

    The calls of ``messages`` have their arguments as objects, as ``template_messages`` makes them.
    """
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    found = [_plain(message) for message in messages]
    if tools and found:
        found[0]["content"] = _PROMPT.format(functions=functions) + found[0]["content"]
    return found


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without calls, and without the role ``tool``. Other messages are unchanged."""
    content = message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"The function returned: {content}"}
    if calls := message.get("tool_calls"):
        text = json.dumps([call["function"] for call in calls], ensure_ascii=False)
        content = f"{content}\n{text}" if content else text
    return {key: value for key, value in message.items() if key != "tool_calls"} | {"content": content}
