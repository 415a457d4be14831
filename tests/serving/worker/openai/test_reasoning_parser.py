"""Tests that reasoning is split from texts, however they come in pieces."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.worker.openai.reasoning import ReasoningMarks, ReasoningParser, Thought, find_marks
from tests.support.tiny_models import tiny_tokenizer

MARKS = ReasoningMarks("<think>", "</think>")


def parse(text: str, is_open: bool, cuts: list[int]) -> tuple[str, str]:
    """The reasoning and content of ``text``, in pieces that end at ``cuts``."""
    parser = ReasoningParser(Thought(MARKS, is_open))
    ends = sorted({min(cut, len(text)) for cut in cuts})
    found = [parser.push(text[begin:end]) for begin, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    found.append(parser.push("", final=True))
    return "".join(each for each, _ in found), "".join(each for _, each in found)


TABLE = [
    # text, whether the prompt opens the thought, reasoning, content
    ("<think>\nWell.\n</think>\n\nHi. ", False, "Well.", "Hi. "),
    ("Well.\n</think>\n\nHi.", True, "Well.", "Hi."),
    ("<think>Well.</think>Hi.", True, "Well.", "Hi."),  # opened twice
    ("<think>\n\n</think>\n\nHi.", False, "", "Hi."),
    (" \nHi.\n", False, "", " \nHi.\n"),
    ("Hi. <think>No.</think>", False, "", "Hi. <think>No.</think>"),
    ("<think>Wel", False, "Wel", ""),  # cut off
    ("Well </thi", True, "Well </thi", ""),
    ("<thi", False, "", "<thi"),
    ("<thi", True, "<thi", ""),
    ("a < b </ </thin </think>1 </think>", True, "a < b </ </thin", "1 </think>"),
    ("</think>", True, "", ""),
    (" \n", True, "", ""),
]


@pytest.mark.parametrize(("text", "is_open", "reasoning", "content"), TABLE)
def test_every_cut_gives_the_same(text: str, is_open: bool, reasoning: str, content: str) -> None:
    assert parse(text, is_open, list(range(len(text)))) == (reasoning, content)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert parse(text, is_open, [first, second]) == (reasoning, content)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "think", ">", " ", "\n", "é", "x"])).map("".join),
    st.booleans(),
    st.lists(st.integers(0, 40)),
)
@example("<think>\n</thi </think>", False, [4, 12])
def test_any_text_is_split_alike_in_pieces_and_whole(text: str, is_open: bool, cuts: list[int]) -> None:
    assert parse(text, is_open, cuts) == parse(text, is_open, [])
    begins = text.lstrip().startswith("<think>")
    inside = text.lstrip().removeprefix("<think>") if begins else text
    thought, _, rest = inside.partition("</think>") if begins or is_open else ("", "", "")
    assert parse(text, is_open, []) == ((thought.strip(), rest.lstrip()) if begins or is_open else ("", text))


@pytest.mark.parametrize(
    ("template", "name", "begin"),
    [
        ("{{ content.split('</think>') }}", "auto", "<think>"),
        ("[THINK]", "auto", "[THINK]"),
        ("plain", "auto", None),
        ("<think>", "none", None),
        ("plain", "<a> </a>", "<a>"),
    ],
)
def test_marks_are_those_of_the_template_or_of_the_option(template: str, name: str, begin: str | None) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    found = find_marks(tokenizer, name)
    assert (found and found.begin) == begin
    for wrong in ("x", "x x"):
        with pytest.raises(InvalidArgument, match=f"reasoning is '{wrong}'; give auto, none or two marks"):
            find_marks(tokenizer, wrong)
