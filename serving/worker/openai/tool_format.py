"""Formats of tool calls in generated texts, and of tools in prompts for models whose chat template takes none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffolk.datastore.checks import check_choice

_PROMPT = (
    "These functions can be called. To call some, answer with a JSON list alone: "
    '[{{"name": FUNCTION, "arguments": {{ARGUMENT: VALUE}}}}]\n{functions}\n\n'
)


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The form of a model's tool calls.

    A call is a JSON object with ``name`` and ``arguments`` or ``parameters``, or a list of these objects. JSON at the
    beginning of a text counts as a call even without its mark, because many tokenizers leave special tokens out of texts.

    Attributes:
        name: name of the format.
        begin: mark before a call or list; empty for none.
        end: mark after a call or list; empty for none.
        key: key of the arguments in constrained output.
        is_listed: whether several calls form one JSON list. Otherwise each call has its own marks.
        separator: characters between calls, besides white space.
    """

    name: str
    begin: str = ""
    end: str = ""
    key: str = "arguments"
    is_listed: bool = False
    separator: str = ""


FORMATS = {
    each.name: each
    for each in (
        ToolFormat("hermes", "<tool_call>", "</tool_call>"),  # Hermes, Qwen
        ToolFormat("mistral", "[TOOL_CALLS]", is_listed=True),
        ToolFormat("llama", "<|python_tag|>", key="parameters", separator=";"),  # Llama 3
        ToolFormat("json", is_listed=True),
    )
}
AUTO = "auto"


def find_format(template: object, name: str = AUTO) -> ToolFormat:
    """The format ``name``. ``auto`` selects the format whose mark the chat template contains, else ``json``.

    Raises InvalidArgument for an unknown name.
    """
    if name != AUTO:
        check_choice("tool_format", name, (AUTO, *FORMATS))
        return FORMATS[name]
    text = str(template)  # some tokenizers have several templates, by name
    return next((each for each in FORMATS.values() if each.begin and each.begin in text), FORMATS["json"])


def takes_tools(tokenizer: Any) -> bool:
    """Whether the chat template of ``tokenizer`` takes tools."""
    return "tools" in str(getattr(tokenizer, "chat_template", ""))


def generic_messages(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``messages`` of roles that every template knows. The first one begins with a description of ``tools``, if there are some.

    The calls of ``messages`` have their arguments as ``template_messages`` makes them.
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
