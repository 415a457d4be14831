"""Items of POST /v1/responses, and the messages that they stand for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from suffolk.serving.net.http_body import InvalidField, invalid_field, shown
from suffolk.serving.worker.openai.bodies import Message
from suffolk.serving.worker.openai.content import Content, text_of
from suffolk.serving.worker.openai.known_fields import check_names
from suffolk.serving.worker.openai.responses_tools import full_name

_STORES_NO_ITEMS = "this worker stores no items; send the item itself, as clients do with store: false"
_CALLS = ("function_call", "custom_tool_call")
_LEFT_OUT = ("file_search_call", "mcp_list_tools", "tool_search_call", "tool_search_output", "web_search_call")
"""Types of items of a history that have no text for the model: searches, and tools that other servers list or run."""


class ResponsesPart(BaseModel):
    """Base of objects in a body. Misspelled fields are refused. ``path``: the object's path, with a dot at its end."""

    model_config = ConfigDict(strict=True, extra="allow")
    path: ClassVar[str] = ""
    other_names: ClassVar[Mapping[str, str]] = {}
    """Names of fields in other APIs -> names in this API."""

    @model_validator(mode="after")
    def _check_names(self) -> ResponsesPart:
        if self.path:
            fields = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
            check_names(self.path, fields | (self.model_extra or {}), list(fields), self.other_names)
        return self


class Item(ResponsesPart):
    """An item of the input: a message, a call, its output, reasoning, a search, tools or a reference. If ``type`` is null, it is
    a message or a reference.

    Custom calls, whose input is a text, come from a conversation that another model began.
    """

    type: (
        Literal[
            "message",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "reasoning",
            "item_reference",
            "file_search_call",
            "mcp_list_tools",
            "tool_search_call",
            "tool_search_output",
            "web_search_call",
        ]
        | None
    ) = None
    id: str | None = None
    role: str | None = None
    content: Any = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None  # as in chats, where some clients send an object
    input: str | None = None
    output: Content | None = None
    summary: list[Any] | None = None


class MessageItem(ResponsesPart):
    """An item of type ``message``."""

    role: Literal["user", "assistant", "system", "developer"]
    content: Content


def messages_of(instructions: str | None, given: str | Sequence[Item]) -> list[Message]:
    """The messages of ``input``, instructions first. A call joins the assistant's message before it. Raises InvalidField."""
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    items = [Item(role="user", content=given)] if isinstance(given, str) else given
    for at, item in enumerate(items):
        if item.type == "item_reference" or (item.type is None and item.id is not None and item.role is None):
            raise InvalidField(f"input[{at}]", f" refers to item {shown(item.id)}; {_STORES_NO_ITEMS}")
        if item.type in (None, "message"):
            _add_message(messages, _message(f"input[{at}]", item))
        elif item.type in _CALLS:
            _add_call(messages, f"input[{at}]", item)
        elif item.type == "reasoning":
            _add_reasoning(messages, f"input[{at}]", item)
        elif item.type not in _LEFT_OUT:
            output = {"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)}
            messages.append(output)
    return [Message(**message) for message in messages]


def _message(path: str, item: Item) -> dict[str, Any]:
    try:
        message = MessageItem.model_validate({"role": item.role, "content": item.content})
    except ValidationError as error:
        _, field, text = invalid_field(error)
        raise InvalidField(f"{path}.{field}", f": {text}") from None
    role = "system" if message.role == "developer" else message.role
    return {"role": role, "content": text_of(message.content)}


def _add_message(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Append ``message``. Templates take one system message at the start, so a second one there joins the first. An answer joins
    its reasoning."""
    if message["role"] == "system" and [each["role"] for each in messages] == ["system"]:
        messages[0]["content"] += "\n\n" + message["content"]
    elif message["role"] == "assistant" and messages and messages[-1].keys() == {"role", "reasoning_content"}:
        messages[-1] |= message
    else:
        messages.append(message)


def _add_reasoning(messages: list[dict[str, Any]], path: str, item: Item) -> None:
    """The text of reasoning begins a message. Reasoning without text, as of OpenAI's models, is left out."""
    if not isinstance(item.content, list | None):
        raise InvalidField(f"{path}.content", f" is {shown(item.content)}; it must be an array of parts")
    texts = [part.get("text") for part in item.content or () if isinstance(part, Mapping)]
    if text := "\n".join(each for each in texts if isinstance(each, str)):
        messages.append({"role": "assistant", "reasoning_content": text})


def _add_call(messages: list[dict[str, Any]], path: str, item: Item) -> None:
    given = item.arguments if item.type == "function_call" else item.input
    if item.name is None or given is None:
        field = "arguments" if item.type == "function_call" else "input"
        raise InvalidField(path, f": a {item.type} has name and {field}")
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    function = {"name": full_name(item.namespace or "", item.name), "arguments": given}
    if item.type == "custom_tool_call":
        function["arguments"] = json.dumps({"input": given}, ensure_ascii=False)
    calls = messages[-1].setdefault("tool_calls", [])
    calls.append({"id": item.call_id, "type": "function", "function": function})
