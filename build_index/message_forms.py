"""Rewrites conversations that a chat template rejects: with one system message, with alternating turns, or with short ids.

For templates that accept no tools, tools and their calls become plain texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

_PROMPT = (
    "These functions can be called. To call some, answer with a JSON list alone: "
    '[{{"name": FUNCTION, "arguments": {{ARGUMENT: VALUE}}}}]\n{functions}\n\n'
)


def simpler_forms(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield ``messages``, then simpler forms, each for templates that reject the previous form.

    In the first form, system messages are joined at the start. In the second, neighbours of the same role are also joined, as
    Gemma and Mistral require. In the third, the first message begins with the system's text, as Gemma 2 requires. A
    form that equals the one before it is left out. If there are tool calls, all forms follow again with short ids.
    """
    yield messages
    found = [messages]
    if (one := _with_one_system(messages)) != messages:
        found.append(one)
    if (joined := _with_turns(one)) != one:
        found.append(joined)
    if [message["role"] for message in joined[:2]] == ["system", "user"]:
        found.append([_joined("user", joined[:2]), *joined[2:]])
    yield from found[1:]
    if any(message.get("tool_calls") or message["role"] == "tool" for message in messages):
        yield from map(_with_short_ids, found)


def _with_one_system(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join all system messages into one at the start, for templates that accept one there, for example Qwen's."""
    contents = [message["content"] for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(contents)}, *others] if contents else others


def _with_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbours of the same role, except tool calls and their results."""
    found: list[dict[str, Any]] = []
    for (role, alone), group in groupby(messages, lambda each: (each["role"], bool(each.get("tool_calls")))):
        run = list(group)
        found += run if alone or role == "tool" or len(run) == 1 else [_joined(role, run)]
    return found


def _joined(role: str, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {**messages[-1], "role": role, "content": "\n\n".join(message["content"] for message in messages)}


def _with_short_ids(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give calls and results ids of 9 letters and digits, which Mistral's templates require."""
    found: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    waiting: list[str] = []  # ids of the last calls without a result
    for message in messages:
        change: dict[str, Any] = {}
        if calls := [dict(call) for call in message.get("tool_calls") or () if isinstance(call, Mapping)]:
            waiting = [f"call{len(found):03}{at:02}" for at in range(len(calls))]
            ids |= {str(call["id"]): new for call, new in zip(calls, waiting, strict=True) if call.get("id")}
            change["tool_calls"] = [call | {"id": new} for call, new in zip(calls, waiting, strict=True)]
        elif message.get("role") == "tool":
            new = ids.get(str(message.get("tool_call_id"))) or next(iter(waiting), "call00000")
            waiting = [each for each in waiting if each != new]
            change["tool_call_id"] = new
        found.append({**message, **change})
    return found


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
