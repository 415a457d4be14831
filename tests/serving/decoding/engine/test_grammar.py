"""Tests grammars: their values, rejected grammars, and a matcher that equals an oracle which parses every path."""

from __future__ import annotations

import gc
import json
import re
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling import grammar_compiler, grammar_matcher
from suffolk.serving.decoding.engine.sampling.grammar import MAX_GRAMMAR, Grammar
from suffolk.serving.decoding.engine.sampling.grammar_compiler import GrammarCompiler
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import tree
from tests.support.grammars import END, GRAMMARS, Oracle, ending_target, tokens_of
from tests.support.tiny_models import tiny_tokenizer


@pytest.fixture(scope="module")
def target() -> Target:
    return ending_target()


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("xml", "", "grammar.kind is 'xml'; it must be one of json_object, json_schema, regex, lark"),
        ("regex", "", "grammar.text has 0 characters; regex takes the schema, expression or rules"),
        ("json_object", "{}", "json_object takes none; use json_schema for a schema"),
        ("json_schema", "{", "grammar.text is no JSON"),
        ("json_schema", "[" * 100_000, "grammar.text is no JSON"),
        ("json_schema", "[1]", "grammar.text is the JSON of a list; a schema is an object"),
        ("regex", "a" * (MAX_GRAMMAR + 1), f"the limit is {MAX_GRAMMAR}"),
        ("regex", 5, "grammar.text is of type int"),
    ],
)
def test_a_wrong_value_is_refused(kind: str, text: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message.replace("[", r"\[")):
        Grammar(kind, text)


def test_a_setting_of_another_type_is_refused() -> None:
    grammar: Any = "[0-9]+"
    with pytest.raises(InvalidArgument, match="grammar is of type str; give a Grammar"):
        SamplingSettings(grammar=grammar)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json_schema", '{"type": "objekt"}', "Invalid type: objekt"),
        ("json_schema", '{"not": {"type": "string"}}', r'Unimplemented keys: \["not"\]'),
        ("json_schema", '{"$ref": "http://x/y"}', "http://x/y"),
        ("json_schema", '{"$ref": "#/$defs/none"}', "does not exist"),
        ("json_schema", '{"$ref": "#"}', "circle of references"),
        ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}', "Unsatisfiable schema"),
        ("json_schema", '{"type": "object", "properties": {"a": false}, "required": ["a"]}', "Unsatisfiable schema"),
        ("json_schema", '{"x-guidance": {"zork": 1}}', "zork"),
        ("json_schema", '{"properties": {"a": ' * 100 + "{}" + "}}" * 100, "recursion limit"),
        ("regex", "(a", "unclosed group"),
        ("regex", "a(?=b)", "look-around"),
        ("lark", "start: other", "other"),
    ],
)
def test_what_the_library_refuses_is_named(target: Target, kind: str, text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as refusal:
        GrammarMatcher.of(target, Grammar(kind, text))
    assert "\n" not in str(refusal.value)
    assert "<state>" not in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "text"), [("gbnf", "root ::= "), ("gbnf", 'root ::= a*\na ::= ""'), ("lark", "start: "), ("regex", "()")]
)
@pytest.mark.parametrize("before", ["", 'before: "<" thought\nthought[suffix=">"]: /(.|\\n)*/'])
def test_a_grammar_of_the_empty_text_alone_is_refused(target: Target, kind: str, text: str, before: str) -> None:
    with pytest.raises(InvalidArgument, match="is refused: only an empty text matches it"):
        GrammarCompiler.of(target).compile(Grammar(kind, text, before=before))
    GrammarCompiler.of(target).compile(Grammar("regex", "a?", before=before))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "(a{1000}){1000}"),
        ("lark", "start: /(a{1000}){1000}/"),
        ("json_schema", '{"type": "string", "pattern": "^(a{1000}){1000}$"}'),
    ],
)
def test_an_expression_that_is_too_large_is_refused_at_once(target: Target, kind: str, text: str) -> None:
    """Regression: it failed after the first token, and the engine compiled it again, for seconds in which no text went on."""
    with pytest.raises(InvalidArgument, match=r"guided is refused: .*too many expressions") as refusal:
        GrammarMatcher.of(target, Grammar(kind, text, "guided"))
    assert refusal.value.field == "guided"
    GrammarMatcher.of(target, Grammar("regex", "(a{100}){100}"))


@pytest.mark.parametrize(
    ("schema", "number"),
    [
        ({"const": -(1 << 63)}, "const -9223372036854775808"),
        ({"enum": ["a", {"b": -(1 << 63) + 1}]}, "b -9223372036854775807"),
        ({"allOf": [{"type": "integer"}, {"maximum": -1e19, "minimum": -1e22}]}, "maximum -1e+19"),
        ({"properties": {"a": {"type": "integer", "exclusiveMaximum": -1e19}}}, "exclusiveMaximum -1e+19"),
        ({"type": "integer", "minimum": -1e22, "maximum": -(1 << 63) + 511}, "maximum -9223372036854775297"),
        ({"properties": {"enum": {"type": "integer", "maximum": -1e19}}}, "maximum -1e+19"),
        ({"enum": [1234567890123456789]}, "enum 1234567890123456789"),
    ],
)
def test_numbers_that_the_library_rounds_or_dies_of_are_refused(target: Target, schema: Any, number: str) -> None:
    """Regression: all but the last one ended the process."""
    for grammar in (Grammar("json_schema", json.dumps(schema)), Grammar("lark", f"start: %json {json.dumps(schema)}")):
        with pytest.raises(InvalidArgument, match=f"is refused: {re.escape(number)} has too many digits"):
            GrammarCompiler(target.tokenizer, target.vocab_size, target.eos_ids).compile(grammar)


@pytest.mark.parametrize("kind", ["json_schema", "lark"])
def test_the_longest_chain_of_references_does_not_end_the_process(target: Target, kind: str) -> None:
    """Regression: the library ran out of stack."""
    if kind == "lark":
        text = "start: r0\n" + "".join(f"r{at}: r{at + 1}\n" for at in range(16_000)) + 'r16000: "a"'
    else:
        chain: dict[str, Any] = {str(at): {"items": {"$ref": f"#/$defs/{at + 1}"}} for at in range(6_300)}
        text = json.dumps({"$ref": "#/$defs/0", "$defs": chain | {"6300": {}}}, separators=(",", ":"))
    assert 0.8 * MAX_GRAMMAR < len(text) <= MAX_GRAMMAR
    with suppress(InvalidArgument):  # the library may refuse it
        GrammarCompiler(target.tokenizer, target.vocab_size, target.eos_ids).compile(Grammar(kind, text))


def test_without_the_library_a_grammar_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = GrammarCompiler(tiny_tokenizer(), 257, frozenset())
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "llguidance", None)
        patch.setitem(sys.modules, "llguidance.hf", None)
        with pytest.raises(Unsupported, match=r"a grammar needs llguidance .*; pip install 'suffolk\[openai\]'"):
            compiler.compile(Grammar("json_object"))
    compiler.compile(Grammar("json_object"))


@pytest.mark.parametrize(
    ("tokenizer", "error", "message"),
    [
        (None, InvalidArgument, "a grammar needs a tokenizer"),
        (object(), Unsupported, "a grammar cannot use the tokenizer object"),
    ],
)
def test_a_grammar_needs_a_tokenizer_that_the_library_reads(
    tokenizer: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GrammarCompiler(tokenizer, 257, frozenset()).compile(Grammar("json_object"))


@pytest.mark.parametrize(
    ("expression", "good", "bad"),
    [
        (r"\w+@\d", "ab_1@2", ("\u00e9@2", "\U0001f131@2", "a@\u0663")),
        (r"[^\W\d][\w.-]", "a-", ("1a", "a\u00e9")),
        (r"\D\W", "\u0663\u00e9", ("1!", "!a")),
        (r"\\w+", r"\ww", ("a", r"\a")),
    ],
)
def test_classes_of_expressions_are_those_of_ascii(
    target: Target, expression: str, good: str, bad: Sequence[str]
) -> None:
    """Regression: word characters were those of Unicode, so small models wrote circled letters without end."""

    def is_whole(text: str) -> bool:
        matcher = GrammarCompiler.of(target).compile(Grammar("regex", expression))
        return bool(matcher.consume_tokens(tokens_of(text)) and matcher.is_accepting())

    assert is_whole(good)
    assert not any(is_whole(text) for text in bad)


def test_a_parser_whose_lexer_is_full_is_replaced(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts that fill the lexer must not end their text, nor the next text of the same grammar."""
    monkeypatch.setattr(grammar_compiler, "MAX_STATES", 1000)
    grammar = Grammar("regex", r"(.|\n)*a(.|\n){50}b(.|\n){50}c(.|\n)*")
    rng = np.random.default_rng(2)
    parser, read = GrammarCompiler.of(target).compile(grammar), 0
    while parser.consume_tokens(tokens_of("abc"[int(rng.integers(3))])):
        read += 1
        parser.compute_bitmask()
    assert "too many states" in parser.get_error()
    for _ in range(2):
        matcher, text = GrammarMatcher.of(target, grammar), ""
        assert matcher is not None
        for _ in range(2 * read):
            text += "abc"[int(rng.integers(3))]
            masked = matcher.apply(torch.zeros(2, 257), contexts(text, "a"))
            assert (masked[0, tokens_of("abc")] == 0).all()
            assert not matcher.is_complete(np.array(tokens_of(text)))


def test_masks_that_take_too_long_end_the_draft(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = GrammarMatcher.of(target, Grammar("regex", "[abc]+"))
    assert matcher is not None
    monkeypatch.setattr(grammar_matcher, "MOST_SECONDS", 0.0)
    for text in ("a", "ab"):
        masked = matcher.apply(torch.zeros(3, 257), contexts(text, "ab"))
        assert [bool((row == 0).any()) for row in masked] == [True, False, False]
        assert matcher.allowed(contexts(text, "ab")).all()


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_and_allowed_rows_equal_those_of_parsing_every_path(
    target: Target, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test follows random texts of the grammar, with trees of which half the nodes are allowed and half are random."""
    monkeypatch.setattr(grammar_matcher, "MOST_SECONDS", np.inf)  # a busy machine once took longer than the limit
    rng = np.random.default_rng(1)
    oracle = Oracle(target, GRAMMARS[name])
    for _ in range(4):
        matcher = GrammarMatcher.of(target, GRAMMARS[name])
        assert matcher is not None
        text: list[int] = []
        while len(text) < 14 and (following := oracle.following(text)).any():
            tokens, parents, paths = [], [], [text]
            for node in range(6):
                parent = int(rng.integers(-1, node))
                allowed = np.flatnonzero(oracle.following(paths[parent + 1]))
                known = len(allowed) and rng.random() < 0.7
                tokens.append(int(rng.choice(allowed)) if known else int(rng.integers(0, 257)))
                parents.append(parent)
                paths.append([*paths[parent + 1], tokens[-1]])
            contexts = RowContexts.of_tree(np.array([7, *text]), 1, tree(tokens, parents))
            expected = [oracle.accepts(path) for path in paths]
            assert matcher.allowed(contexts).tolist() == expected
            masked = matcher.apply(torch.zeros(7, 257), contexts).numpy()
            for row, path in enumerate(paths):
                tried = oracle.following(path)
                if expected[row] and tried.any():  # after a complete text the library allows its end once more
                    assert ((masked[row] == 0) == tried).all(), (text, path)
                assert expected[row] or (masked[row] == -np.inf).all()
            text.append(int(rng.choice(np.flatnonzero(following))))
        assert matcher.is_complete(np.array(text)) == (not oracle.following(text).any())


class Fragile:
    """A parser that fails permanently when it reads ``bad``, or when it masks the tokens after ``dark``."""

    def __init__(self, parser: Any, bad: int, dark: int) -> None:
        self._parser, self._bad, self._dark = parser, bad, dark
        self._failed, self._read = "", [0]

    def try_consume_tokens(self, tokens: list[int]) -> int:
        if self._bad in tokens:
            self._failed = "the parser is too complex"
            return 0
        taken = int(self._parser.try_consume_tokens(tokens))
        self._read += tokens[:taken]
        return taken

    def consume_tokens(self, tokens: list[int]) -> bool:
        return self.try_consume_tokens(tokens) == len(tokens)

    def rollback(self, count: int) -> bool:
        del self._read[len(self._read) - count :]
        return bool(self._parser.rollback(count))

    def unsafe_compute_mask_ptr(self, pointer: int, size: int) -> None:
        if self._read[-1] == self._dark:
            self._failed = "the lexer is too complex"
        self._parser.unsafe_compute_mask_ptr(pointer, size)

    def is_error(self) -> bool:
        return bool(self._failed)

    def get_error(self) -> str:
        return self._failed

    def is_stopped(self) -> bool:
        return bool(self._failed) or bool(self._parser.is_stopped())


def fragile(target: Target, bad: str = "", dark: str = "") -> GrammarMatcher:
    """A matcher of ``(a|b|c)+``."""

    grammar = Grammar("regex", "(a|b|c)+", "guided_regex")

    def new_parser() -> Any:
        tokens = [tokens_of(each)[0] if each else -1 for each in (bad, dark)]
        return Fragile(GrammarCompiler.of(target).compile(grammar), *tokens)

    return GrammarMatcher(new_parser, target.vocab_size, grammar)


def contexts(text: str, drafted: str) -> RowContexts:
    """The contexts of a chain after ``text``."""
    tokens = tokens_of(drafted)
    return RowContexts.of_tree(np.array([7, *tokens_of(text)]), 1, tree(tokens, list(range(-1, len(tokens) - 1))))


def test_a_parser_that_fails_on_a_draft_starts_again(target: Target) -> None:
    matcher = fragile(target, bad="b")
    with pytest.raises(
        InvalidArgument, match="guided_regex failed after 1 tokens: the parser is too complex"
    ) as caught:
        matcher.allowed(contexts("a", "cb"))
    assert caught.value.field == "guided_regex"
    assert matcher.allowed(contexts("ac", "ca")).tolist() == [True, True, True]
    masked = matcher.apply(torch.zeros(3, 257), contexts("ac", "cb"))
    assert [bool((row == 0).any()) for row in masked] == [True, True, False]  # only the draft's row is invalid
    assert not matcher.is_complete(np.array(tokens_of("aca")))


def test_a_mask_that_fails_behind_a_draft_is_that_of_a_dead_row(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    matcher = fragile(target, dark="c")
    for _ in range(2):
        masked = matcher.apply(torch.zeros(3, 257), contexts("ab", "ac"))
        assert [bool((row == 0).any()) for row in masked] == [True, True, False]
    assert [record.getMessage() for record in caplog.records] == [
        "guided_regex failed after 2 tokens: the lexer is too complex; simplify the grammar or shorten the text; "
        "continuing without that draft"
    ]


def test_a_failed_mask_keeps_no_memory(target: Target) -> None:
    """An error whose frames refer to it would keep the logits until the next garbage collection."""
    matcher, logits = fragile(target, dark="c"), torch.zeros(3, 257)
    kept = weakref.ref(logits)
    gc.disable()
    try:
        matcher.apply(logits, contexts("ab", "ac"))
        del logits
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("bad", "dark"), [("b", ""), ("", "b")])
def test_a_parser_that_fails_on_the_text_is_an_error(target: Target, bad: str, dark: str) -> None:
    matcher = fragile(target, bad, dark)
    assert not matcher.is_complete(np.array(tokens_of("ab")))
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="guided_regex failed after 2 tokens"):
            matcher.apply(torch.zeros(1, 257), contexts("ab", ""))


def test_committed_tokens_that_the_grammar_forbids_are_an_error(target: Target) -> None:
    matcher = GrammarMatcher.of(target, Grammar("regex", "a+"))
    assert matcher is not None
    with pytest.raises(InvalidArgument, match="doesn't satisfy the grammar"):
        matcher.apply(torch.zeros(1, 257), contexts("ax", ""))


def test_the_end_may_be_drafted_and_taken_back(target: Target) -> None:
    matcher = GrammarMatcher.of(target, Grammar("regex", "a+"))
    assert matcher is not None
    ends = RowContexts.of_tree(np.array([7, *tokens_of("a")]), 1, tree([END, *tokens_of("aa")], [-1, 0, -1]))
    assert matcher.allowed(ends).tolist() == [True, True, False, True]
    assert not matcher.is_complete(np.array(tokens_of("a")))
    assert matcher.is_complete(np.array([*tokens_of("a"), END]))


def test_json_is_not_padded_without_end(target: Target) -> None:
    matcher = GrammarMatcher.of(target, Grammar("json_schema", json.dumps({"type": "object"})))
    assert matcher is not None
    rows = matcher.apply(torch.zeros(2, 257), contexts("{" + " " * 40, " "))
    assert (rows[:, tokens_of(" ")[0]] == 0).tolist() == [True, False]
