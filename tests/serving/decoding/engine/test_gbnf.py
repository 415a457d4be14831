"""Tests grammars in llama.cpp's syntax against the texts that they allow there."""

from __future__ import annotations

import time

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.sampling.grammar import MAX_GRAMMAR, Grammar
from suffolk.serving.decoding.engine.sampling.grammar_compiler import _FILLING, GrammarCompiler, _joined
from tests.support.grammars import ending_target


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (r'root ::= "\x41\x22" "\u0042" "\U00000043"', 'A"BC'),
        (r'root ::= "\u0041b" "\x09" "\x00"', "Ab\t\0"),
        (r'root ::= "\u00e9" "\U0001F600"', "é😀"),
        (r'root ::= "\[a\]" [\]\[]', "[a]["),
        (r"root ::= [\x5e\x2dz] [\u00e0-\u00ef] [^\x00-\x1F\x7F\u2028]", "-é "),
        (r"root ::= [\U0001F600-\U0001F64F]", "😁"),
        (r'root ::= "\\x41" "\\" # "\x41"', "\\x41\\"),
        (r'root ::= [a\-z] "\-\/"', "--/"),
    ],
)
def test_escapes_are_those_of_llama_cpp(rules: str, text: str) -> None:
    """Regression: those in texts, and those with leading zeros, were refused."""
    target = ending_target()
    matcher = GrammarCompiler.of(target).compile(Grammar("gbnf", rules))
    tokens = target.tokenizer.encode(text, add_special_tokens=False)
    assert target.tokenizer.decode(tokens) == text
    assert matcher.try_consume_tokens(tokens) == len(tokens)
    assert matcher.is_accepting()


@pytest.mark.parametrize(
    "rules",
    [
        'root ::= "a"\n  | b # "c" [d]\n  # e\n\n | [#|]\nb ::= "b #  |"\n',
        'root ::=\n  "a" |\n  b |\n  [#|] # f\n# g\nb ::= "b #  |"',
    ],
)
def test_alternatives_may_be_on_lines_of_their_own(rules: str) -> None:
    """Regression: a line could not begin with one."""
    target = ending_target()
    for text in ("a", "b #  |", "#", "|"):
        matcher = GrammarCompiler.of(target).compile(Grammar("gbnf", rules))
        tokens = target.tokenizer.encode(text, add_special_tokens=False)
        assert matcher.try_consume_tokens(tokens) == len(tokens)
        assert matcher.is_accepting()


@pytest.mark.parametrize("part", [" \n", '"', "[", '"\\', "[\\", "#", " |"])
def test_a_long_grammar_is_refused_soon(part: str) -> None:
    rules = "root ::= " + part * ((MAX_GRAMMAR - 9) // len(part))
    begin = time.monotonic()
    assert _FILLING.sub(_joined, rules) is not None
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("escape", [r"\ud83d", r"\U00110000", r"\x4", r"\q"])
def test_an_escape_of_no_character_is_refused(escape: str) -> None:
    with pytest.raises(InvalidArgument, match="is refused"):
        GrammarCompiler.of(ending_target()).compile(Grammar("gbnf", f'root ::= "{escape}"'))
