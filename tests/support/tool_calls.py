"""Tool calls of parsers for tests."""

from __future__ import annotations

from collections.abc import Iterable

from suffolk.serving.worker.openai.tool_calls import MoreArguments, ToolCall


def joined(events: Iterable[str | ToolCall | MoreArguments]) -> list[ToolCall]:
    """The calls among the events of a parser, each in one piece."""
    calls: list[ToolCall] = []
    for event in events:
        if isinstance(event, ToolCall):
            calls.append(event)
        elif isinstance(event, MoreArguments):
            calls[-1] = ToolCall(calls[-1].name, calls[-1].arguments + event.text)
    return calls
