"""Formats of tool calls in generated texts."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.datastore.checks import check_choice


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
