"""Tests text from tokens: whole characters, stop strings across tokens, and no loss."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.serving.decoding.engine.loop.text_stream import TextStream
from tests.support.tiny_models import tiny_tokenizer

TOKENIZER = tiny_tokenizer()


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text)["input_ids"])


def streamed(tokens: list[int], *stop: str) -> tuple[list[str], int, bool]:
    """Return the output of each push, the pushed tokens, and whether the stream stopped.

    The last output is the remaining text.
    """
    stream = TextStream(TOKENIZER, stop)
    shown: list[str] = []
    for number, token in enumerate(tokens, start=1):
        shown.append("".join(text for text, _ in stream.push(token)))
        if stream.stopped:
            return shown, number, True
    return [*shown, "".join(text for text, _ in stream.finish())], len(tokens), False


def test_a_character_appears_when_its_last_byte_does() -> None:
    assert streamed(encode("a€b"))[0] == ["a", "", "", "€", "b", ""]


def test_an_unfinished_character_comes_out_broken_at_the_end() -> None:
    assert "".join(streamed(encode("a€")[:-1])[0]).startswith("a\ufffd")


@given(st.text(max_size=40))
def test_nothing_is_lost(text: str) -> None:
    assert "".join(streamed(encode(text))[0]) == text


@given(
    st.text(alphabet="ab€\n", max_size=30),
    st.lists(st.text(alphabet="ab€\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_the_text_ends_before_the_first_stop_string(text: str, stop: list[str]) -> None:
    shown, pushed, stopped = streamed(encode(text), *stop)
    ends = [text.find(each) + len(each) for each in stop if each in text]
    assert stopped == bool(ends)
    if stopped:
        assert pushed == len(text[: min(ends)].encode())
        whole = text[: min(ends)]
        assert "".join(shown) == whole[: min(whole.find(each) for each in stop if each in whole)]
    else:
        assert "".join(shown) == text


def test_a_beginning_of_a_stop_string_is_held_back_until_it_is_none() -> None:
    assert streamed(encode("x##y"), "###")[0] == ["x", "", "", "##y", ""]


def test_pieces_carry_the_source_of_their_token() -> None:
    stream = TextStream(TOKENIZER, ["##"])
    tokens = encode("a#b")
    pieces = [piece for number, token in enumerate(tokens) for piece in stream.push(token, number)]
    assert pieces == [("a", 0), ("#", 1), ("b", 2)]


def test_special_tokens_show_nothing() -> None:
    assert streamed([*encode("a"), 256])[0] == ["a", "", ""]


@pytest.mark.parametrize("stop", ["a", "ab"])
def test_after_the_stop_finish_gives_nothing(stop: str) -> None:
    stream = TextStream(TOKENIZER, [stop])
    for token in encode("ab"):
        stream.push(token)
        if stream.stopped:
            break
    assert stream.finish() == []


def marked_tokenizer() -> Any:
    """The tiny tokenizer with special tokens <|end|> and <|user|>, whose ids are 257 and 258."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>", "<|user|>"]})
    return tokenizer


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        ("<|end|>", "ab"),
        ("b<|end|>", "a"),
        ("<|end|><|user|>", "ab"),
        ("<|end|>c", None),
        ("<|user|>c", "ab"),
        ("|end|", None),
        ("c", "ab"),
    ],
)
@pytest.mark.parametrize("skip", [True, False])
def test_a_stop_string_may_be_or_contain_a_special_token(stop: str, shown: str | None, skip: bool) -> None:
    tokenizer = marked_tokenizer()
    stream = TextStream(tokenizer, [stop], skip_special_tokens=skip)
    text = ""
    for token in tokenizer("ab<|end|><|user|>cd")["input_ids"]:
        text += "".join(piece for piece, _ in stream.push(token))
        if stream.stopped:
            break
    text += "".join(piece for piece, _ in stream.finish())
    if skip:
        assert (text, stream.stopped) == (shown or "abcd", shown is not None)
    else:
        whole = "ab<|end|><|user|>cd"
        assert (text, stream.stopped) == (whole.partition(stop)[0], stop in whole)


def test_the_stop_string_is_shown_on_request_and_does_not_count_before_the_least_tokens() -> None:
    def text(*stop: str, **more: Any) -> str:
        stream, shown = TextStream(TOKENIZER, stop, **more), ""
        for token in encode("ab,cd,ef"):
            shown += "".join(piece for piece, _ in stream.push(token))
            if stream.stopped:
                break
        return shown + "".join(piece for piece, _ in stream.finish())

    assert text(",", include_stop=True) == "ab,"
    assert text("b,", ",", include_stop=True) == "ab,"
    assert text(",", min_tokens=3) == "ab"
    assert text(",", min_tokens=4) == "ab,cd"
    assert text(",", min_tokens=9) == "ab,cd,ef"
