"""Rewrites conversations that a chat template rejects: with one system message, with alternating turns, or with short ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any


def simpler_forms(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield ``messages``, then simpler forms, each for templates that reject the previous form.

    In the first form, system messages are joined at the start. In the second, neighbours of the same role are also joined, as
    Gemma and Mistral require. In the third, the first message begins with the system's text, as Gemma 2 requires. If there are
    calls, these forms follow again with short ids.
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
