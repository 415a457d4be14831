"""Builds write tools and calls as the worker's prompts have them if the chat template takes none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suffolk.build_index.builder import build
from suffolk.build_index.message_forms import generic_messages
from suffolk.build_index.options import BuildOptions
from tests.build_index.test_chat_corpora import texts
from tests.support.building import write_tokenizer
from tests.support.json_lines import write_rows

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
WITH_CALLS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls %}{{ call.function.name }}"
    "{{ call.function.arguments.x }}{% endfor %}\n{% endfor %}"
)
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
ASKED = {"role": "user", "content": "Call it."}
CALL = {"name": "f", "arguments": '{"x": 7}'}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "8"}
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": CALL}]}
OLDER = [ASKED, {"role": "assistant", "content": None, "function_call": CALL}, {**RESULT, "role": "function"}]


def text_of(folder: Path, record: Any, template: str) -> str:
    """The text of the only document of a build."""
    place = write_tokenizer(folder)
    Path(place, "chat_template.jinja").write_text(template)
    write_rows(folder / "a.jsonl", [record])
    build(BuildOptions((str(folder / "a.jsonl"),), folder / "store", tokenizer=place, threads=1))
    [text] = texts(folder)
    return text


@pytest.mark.parametrize("tools", [[{"type": "function", "function": FUNCTION}], [FUNCTION], []])
def test_calls_and_results_are_texts(tmp_path: Path, tools: list[Any]) -> None:
    """Regression: the document lacked the tools and the calls, and had a role that the model does not know."""
    text = text_of(tmp_path, {"messages": [ASKED, CALLED, RESULT], "tools": tools}, PLAIN)
    offered = generic_messages([ASKED], tools)[0]["content"]
    answer = '[{"name": "f", "arguments": {"x": 7}}]'
    assert text == f"<user>{offered}\n<assistant>{answer}\n<user>The function returned: 8\n"
    assert (json.dumps(FUNCTION) in offered) == bool(tools)


def test_a_template_that_takes_calls_keeps_them(tmp_path: Path) -> None:
    text = text_of(tmp_path, {"messages": [ASKED, CALLED, RESULT]}, WITH_CALLS)
    assert text == "<user>Call it.<assistant>f7<tool>8"


def test_the_older_form_of_calls(tmp_path: Path) -> None:
    """Regression: the document lacked the call."""
    assert text_of(tmp_path, {"messages": OLDER}, WITH_CALLS) == "<user>Call it.<assistant>f7<tool>8"
