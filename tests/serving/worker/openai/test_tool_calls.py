"""Tests that tool calls are found in texts, however the texts are split."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.worker.openai import tool_calls
from suffolk.serving.worker.openai.tool_calls import MAX_OPEN, CallReader, ToolCall, ToolCallParser, _JsonScan
from suffolk.serving.worker.openai.tool_format import FORMATS, find_format
from tests.support.tool_calls import joined

NAMES = ("f", "get_weather")
F = ToolCall("f", '{"a": 1}')
G = ToolCall("get_weather", '{"city": "Zürich </tool_call> \\"{\\\\"}')
F_TEXT = '{"name": "f", "arguments": {"a": 1}}'
G_TEXT = json.dumps({"name": "get_weather", "arguments": json.loads(G.arguments)}, indent=1, ensure_ascii=False)

TABLE = [
    # format, text, content, calls
    ("hermes", "Hello there.\n", "Hello there.\n", []),
    ("hermes", "  \n", "  \n", []),
    ("hermes", f"<tool_call>\n{F_TEXT}\n</tool_call>", "", [F]),
    ("hermes", f"I will.\n<tool_call>\n{F_TEXT}\n</tool_call>\n<tool_call>{G_TEXT}</tool_call>\n", "I will.", [F, G]),
    ("hermes", f"<tool_call>{F_TEXT}</tool_call>\nDone.\n", "Done.", [F]),
    ("hermes", f"<tool_call>{F_TEXT}", "", [F]),  # the text ended at its length
    ("hermes", f"\n{F_TEXT}\n{G_TEXT}", "", [F, G]),  # the marks are special tokens, which texts leave out
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}', '<tool_call>{"name": "f", "arguments": {"a": 1}', []),
    ("hermes", "a <tool_call> b", "a <tool_call> b", []),
    ("hermes", "a <tool_call>", "a <tool_call>", []),
    ("hermes", "x < y and <tool_", "x < y and <tool_", []),
    ("hermes", f"<tool_call>{{no}}</tool_call> <tool_call>{F_TEXT}</tool_call>", "<tool_call>{no}</tool_call>", [F]),
    ("hermes", f"<tool_call><tool_call>{F_TEXT}</tool_call>", "<tool_call>", [F]),
    ("hermes", '<tool_call>{"name": "g"}</tool_call>', '<tool_call>{"name": "g"}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>', "", [ToolCall("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', None, []),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', None, []),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>', None, []),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [F]),
    ("hermes", f"<tool_call>{'[' * 50}{']' * 50}</tool_call>", None, []),
    ("hermes", 'See {"name": "f"}', 'See {"name": "f"}', []),  # bare calls stand at the beginning
    ("mistral", f"[TOOL_CALLS] [{F_TEXT}, {G_TEXT}]", "", [F, G]),
    ("mistral", f"[{F_TEXT}]", "", [F]),
    ("mistral", f"Well: [TOOL_CALLS][{F_TEXT}]", "Well:", [F]),
    ("mistral", "[1] is a reference", "[1] is a reference", []),
    ("mistral", f'[{F_TEXT}, {{"name": "g"}}, {G_TEXT}]', '{"name": "g"}', [F, G]),
    ("json", f'[{{"name": "g"}}, {F_TEXT}]', '{"name": "g"}', [F]),
    ("json", '[{"name": "g"}, {"name": "h"}]', None, []),
    ("json", f"[{F_TEXT}, 5]", None, []),
    ("llama", '{"name": "f", "parameters": {"a": 1}}', "", [F]),
    ("llama", '<|python_tag|>{"type": "function", "name": "f", "parameters": {"a": 1}}', "", [F]),
    ("llama", f'{{"name": "f", "parameters": {{"a": 1}}}}; {G_TEXT}', "", [F, G]),
    ("llama", '<|python_tag|>print("hi")', '<|python_tag|>print("hi")', []),
    ("json", F_TEXT, "", [F]),
    ("json", f"[{F_TEXT}, {G_TEXT}]", "", [F, G]),
    ("json", json.dumps([{"id": "1", "type": "function", "function": json.loads(F_TEXT)}]), "", [F]),
    ("json", '{"answer": 5}', '{"answer": 5}', []),
    ("json", '{"name": "Bob", "age": 5}', '{"name": "Bob", "age": 5}', []),
    ("json", '{"name": "f', '{"name": "f', []),
    ("json", "{ }", "{ }", []),
    ("json", "{", "{", []),
]


CUT = [
    # format, text that ended at its length, content, calls
    ("hermes", "Well <tool_call>", "Well", []),
    ("hermes", "Well <tool_ca", "Well", []),
    ("hermes", "a <", "a <", []),
    ("hermes", '<tool_call>\n{"name": "get_', "", []),
    ("hermes", '<tool_call>\n{"name": "f"', "", [ToolCall("f", "")]),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": "x"', "", [ToolCall("f", '{"a": "x"')]),
    (
        "hermes",
        f"<tool_call>{F_TEXT}</tool_call><tool_call>" + '{"name": "f", "arguments": {',
        "",
        [F, ToolCall("f", "{")],
    ),
    ("hermes", '<tool_call>{"name": "g", "arguments": {', '<tool_call>{"name": "g", "arguments": {', []),
    ("hermes", "<tool_call>{no", "<tool_call>{no", []),
    ("hermes", f"Well\n<tool_call>\n{F_TEXT}\n<", "Well", [F]),
    ("hermes", f"Well\n<tool_call>\n{F_TEXT}\n</tool_call", "Well", [F]),
    ("hermes", f"<tool_call>{F_TEXT}</b", "</b", [F]),
    ("mistral", f'[TOOL_CALLS] [{F_TEXT}, {{"name": "f", "arguments": {{"a', "", [F, ToolCall("f", '{"a')]),
    ("llama", '{"name": "f", "parameters": {"a": "x', "", [ToolCall("f", '{"a": "x')]),
    ("json", f'[{F_TEXT}, {{"name": "f", "arguments": {{"a', "", [F, ToolCall("f", '{"a')]),
    ("json", '[{"name": "g", "arguments": {"a', '[{"name": "g", "arguments": {"a', []),
    ("json", '{"name": "f", "description": "', '{"name": "f", "description": "', []),
    ("json", '{"name": "f"', '{"name": "f"', []),
]


def parse(form: str, parts: list[str], is_cut: bool = False) -> tuple[str, list[ToolCall]]:
    parser = ToolCallParser(FORMATS[form], NAMES)
    events = [event for part in parts for event in parser.push(part)] + parser.finish(is_cut)
    return "".join(event for event in events if isinstance(event, str)), joined(events)


@pytest.mark.parametrize(("form", "text", "content", "calls"), TABLE)
def test_content_and_calls_do_not_depend_on_the_split(
    form: str, text: str, content: str | None, calls: list[ToolCall]
) -> None:
    expected = (text if content is None else content, calls)
    assert parse(form, [text]) == expected
    assert parse(form, list(text)) == expected
    for at in range(1, len(text)):
        assert parse(form, [text[:at], text[at:]]) == expected, at


@pytest.mark.parametrize(("form", "text", "content", "calls"), CUT)
def test_no_mark_of_a_call_that_is_cut_off_is_content(
    form: str, text: str, content: str, calls: list[ToolCall]
) -> None:
    for parts in ([text], list(text)):
        assert parse(form, parts, is_cut=True) == (content, calls)


def test_half_of_a_surrogate_pair_stays_escaped() -> None:
    """Regression: the answer could not be sent, because UTF-8 has no halves. Whole pairs become their character."""
    half, pair = (ToolCall("f", f'{{"a": "{text}"}}') for text in (r"\ud83d", "\U0001f600"))
    texts = [rf'{{"name": "f", "arguments": {{"a": "\ud83d{more}"}}}}' for more in ("", r"\ude00")]
    other = r'{"name": "g", "arguments": {"a": "\ud83d"}}'
    assert [parse("hermes", [text]) for text in texts] == [("", [half]), ("", [pair])]
    assert parse("json", [f"[{texts[0]}, {other}]"]) == (other, [half])


def test_required_calls_are_read_in_pieces() -> None:
    for text in (f"<tool_call>\n{F_TEXT}\n</tool_call>\n<tool_call>{G_TEXT}</tool_call>", f"[{F_TEXT}, {G_TEXT}]"):
        for size in range(len(text) + 1):
            expected = joined((whole := CallReader()).push(text[:size]) + whole.finish())
            reader = CallReader()
            events = [event for letter in text[:size] for event in reader.push(letter)] + reader.finish()
            assert joined(events) == expected
            assert [call.name for call in expected] == ["f", "get_weather"][: len(expected)]
        assert [json.loads(call.arguments) for call in expected] == [json.loads(F.arguments), json.loads(G.arguments)]
    reader = CallReader()
    assert [len(reader.push(letter)) for letter in '{"name": "f", "arguments": {"a": 1'][-6:] == [1, 1, 1, 1, 1, 1]


def test_random_texts_are_split_alike() -> None:
    rng = np.random.default_rng(0)
    pieces = [
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        F_TEXT,
        " ",
        "\n",
        "{",
        "}",
        '"',
        "\\",
        "[",
        "]",
        "; ",
        "ab",
    ]
    for number in range(600):
        text = "".join(rng.choice(pieces, int(rng.integers(1, 9))))
        form = list(FORMATS)[number % len(FORMATS)]
        whole = parse(form, [text])
        assert parse(form, list(text)) == whole, text
        if not whole[1]:
            assert whole[0] == text


def test_content_is_not_held_back_longer_than_needed() -> None:
    parser = ToolCallParser(FORMATS["hermes"], NAMES)
    assert parser.push("I think") == ["I think"]
    assert parser.push(" so <") == [" so"]
    assert parser.push("b>") == [" <b>"]
    assert parser.push("<tool_call>" + F_TEXT) == []
    assert parser.push("</tool_call>") == [F]


def test_a_long_text_is_read_once() -> None:
    """The parser reads a long text once. Parsing it again at every part would read 10^10 characters."""
    text = json.dumps({"name": "f", "arguments": {"code": "{\\" * 30_000}})
    content, calls = parse("json", list(text))
    assert (content, len(calls)) == ("", 1)


def test_calls_without_an_end_are_not_read_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser reads calls without an end once. Reading the rest of the text for each of them would read 10^9 characters."""
    starts: list[int] = []

    def scan(begin: int) -> _JsonScan:
        starts.append(begin)
        return _JsonScan(begin)

    monkeypatch.setattr(tool_calls, "_JsonScan", scan)
    text = "<tool_call>{" * 10_000
    assert parse("hermes", [text]) == (text, [])
    assert len(starts) <= MAX_OPEN
    few = "<tool_call>{ " * (MAX_OPEN - 1)
    assert parse("hermes", [few + "<tool_call>" + F_TEXT + "</tool_call>"]) == (few.rstrip(), [F])


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("...<tool_call>\n{...", "hermes"),
        ("...{{ '[TOOL_CALLS] [' }}", "mistral"),
        ("<|python_tag|>", "llama"),
        ({"default": "", "tool_use": "<tool_call>"}, "hermes"),
        ("<|im_start|>", "json"),
        (None, "json"),
    ],
)
def test_the_format_is_that_of_the_template(template: object, name: str) -> None:
    assert find_format(template).name == name
    assert find_format(template, "llama").name == "llama"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="tool_format is 'xml'; it must be one of auto, hermes, mistral"):
        find_format(None, "xml")
