"""One message of the assistant while it is generated: its content and its tool calls."""

from __future__ import annotations

import uuid
from typing import Any

from suffolk.serving.openai.answer import FINISH
from suffolk.serving.openai.tool_calls import ToolCall
from suffolk.serving.openai.tool_choice import ToolChoice
from suffolk.serving.openai.tool_format import ToolFormat


class ChatMessage:
    """Splits the text of one message into content and calls. Not thread-safe."""

    def __init__(self, tools: ToolChoice | None, form: ToolFormat) -> None:
        """``tools``: the tools that may be called. None: all text is content."""
        self._parser = None if tools is None else tools.parser(form)
        self._form = form
        self._is_named = tools is not None and tools.is_named
        self._calls = 0

    def add(self, text: str, is_last: bool) -> tuple[str, list[dict[str, Any]]]:
        """Return the content and the calls that are final once ``text`` is added. Calls have OpenAI's form."""
        if self._parser is None:
            return text, []
        events = self._parser.push(text) + (self._parser.finish() if is_last else [])
        content = "".join(event for event in events if isinstance(event, str))
        return content, [self._entry(event) for event in events if isinstance(event, ToolCall)]

    def finish(self, reason: str) -> str:
        """OpenAI's finish reason.

        It is ``stop`` for a call of a function that the request names. ``reason``: the engine's finish reason.
        """
        found = FINISH[reason]
        return "tool_calls" if self._calls and found == "stop" and not self._is_named else found

    def _entry(self, call: ToolCall) -> dict[str, Any]:
        number = uuid.uuid4().hex
        name = number[:9] if self._form.name == "mistral" else f"call_{number}"  # Mistral's templates want 9 characters
        self._calls += 1
        function = {"name": call.name, "arguments": call.arguments}
        return {"index": self._calls - 1, "id": name, "type": "function", "function": function}
