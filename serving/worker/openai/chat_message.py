"""One message of the assistant while it is generated: its content and its tool calls."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from suffolk.serving.worker.openai.answer import FINISH
from suffolk.serving.worker.openai.call_reader import CallReader, MoreArguments, ToolCall
from suffolk.serving.worker.openai.tool_choice import ToolChoice
from suffolk.serving.worker.openai.tool_format import ToolFormat

Event = str | ToolCall | MoreArguments
"""Content, a call, or more of its arguments."""


class ChatMessage:
    """Splits the text of one message into content and calls. Not thread-safe."""

    def __init__(self, tools: ToolChoice | None, form: ToolFormat) -> None:
        """``tools``: the tools that may be called. None: all text is content."""
        self._reader = CallReader() if tools is not None and tools.is_required else None
        self._parser = tools.parser(form) if tools is not None and self._reader is None else None
        self._form = form
        self._is_named = tools is not None and tools.is_named
        self._calls = 0

    def add(self, text: str, finish: str) -> tuple[str, list[dict[str, Any]]]:
        """Return the content and the calls that ``text`` adds. ``finish``: the engine's finish reason if it is the last text.

        Calls have the form of OpenAI's chunks: the first part of a call has its name, all have arguments.
        """
        events = self._events(text, finish)
        content = "".join(event for event in events if isinstance(event, str))
        return content, self._entries([event for event in events if not isinstance(event, str)])

    def finish(self, reason: str) -> str:
        """OpenAI's finish reason.

        It is ``stop`` for a call of a function that the request names. ``reason``: the engine's finish reason.
        """
        found = FINISH[reason]
        return "tool_calls" if self._calls and found == "stop" and not self._is_named else found

    def _events(self, text: str, finish: str) -> Sequence[Event]:
        if self._reader is not None:
            return [*self._reader.push(text), *(self._reader.finish() if finish else [])]
        if self._parser is not None:
            is_cut = bool(finish) and FINISH[finish] == "length"
            return [*self._parser.push(text), *(self._parser.finish(is_cut) if finish else [])]
        return [text]

    def _entries(self, events: Sequence[ToolCall | MoreArguments]) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, ToolCall):
                entries.append(self._entry(event))
            elif entries:
                entries[-1]["function"]["arguments"] += event.text
            else:
                entries.append({"index": self._calls - 1, "function": {"arguments": event.text}})
        return entries

    def _entry(self, call: ToolCall) -> dict[str, Any]:
        number = uuid.uuid4().hex
        name = number[:9] if self._form.name == "mistral" else f"call_{number}"  # Mistral's templates want 9 characters
        self._calls += 1
        function = {"name": call.name, "arguments": call.arguments}
        return {"index": self._calls - 1, "id": name, "type": "function", "function": function}
