"""Compiles grammars for one tokenizer, with llguidance (https://github.com/guidance-ai/llguidance)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.decoding.engine.sampling.grammar import Grammar, RefusedGrammar
from suffolk.serving.decoding.engine.sampling.grammar_checks import (
    MAX_INTERSECTIONS,
    inner_schemas,
    intersections,
    rule_cycle,
    schema_cycle,
    unheld_number,
)
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line, message_line

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

    from suffolk.serving.decoding.engine.model.target import Target

JSON_OPTIONS: JsonCompileOptions = {"whitespace_pattern": r"[ \t]?(\r?\n){0,2}[ \t]{0,40}"}
"""Between two parts of JSON, white space is at most two line ends and an indentation. Without this limit, small models may generate
white space without end."""
_ASCII = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]"}
"""Character classes of ``regex`` grammars: of ASCII, as in patterns of JSON Schema and in vLLM. llguidance's own are of Unicode."""
STACK_BYTES = 256 << 20
"""Stack of a thread that compiles; unused parts take no memory. For each reference or rule that leads to the next, the library
recurses with up to 17 KiB. If the longest allowed grammar did not fit, the library would end the process."""
_STACK_LOCK = threading.Lock()
MAX_STATES = 50_000
"""The most states of a parser's lexer, of one to two kilobytes each. A parser that needs more fails, and must be replaced."""
INITIAL_FUEL = 300_000
"""The most work for the first mask, in the library's unit: about a quarter of a second. The engine's thread repeats this work if
the parser must be replaced (``GrammarMatcher``)."""

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
"""An escape in a regular expression, GBNF or Lark."""
_FILLING = re.compile(
    r'("(?:\\.|[^"\\])*(?:"|\\?\Z)|\[(?:\\.|[^\]\\])*(?:\]|\\?\Z))|#[^\n]*|(?<!\s)\s+(?=\|)', re.DOTALL
)
"""A text or a class in GBNF (the regex's group), a comment, or the white space before another alternative. Texts and classes may
lack their ends, so that each character is read once."""


class GrammarCompiler:
    """Compiles grammars for a target. Imports llguidance and reads the vocabulary at the first use. Thread-safe."""

    def __init__(self, tokenizer: Any, vocab_size: int, eos_ids: frozenset[int]) -> None:
        """``tokenizer``: a tokenizer of transformers. If it is None, no grammar can be compiled."""
        self._tokenizer, self._vocab_size, self._eos_ids = tokenizer, vocab_size, eos_ids
        self._lock = threading.Lock()
        self._vocabulary: LLTokenizer | None = None

    @staticmethod
    def of(target: Target) -> GrammarCompiler:
        """The compiler for ``target``, which all its requests share."""
        new = GrammarCompiler(target.tokenizer, target.vocab_size, target.eos_ids)
        return cast("GrammarCompiler", target.shared.setdefault(GrammarCompiler, new))

    def compile(self, grammar: Grammar) -> LLMatcher:
        """A parser at the start of a text.

        Each call makes a new parser, because copies would share the lexer's states and their limit.

        Raises:
            InvalidArgument: the library refuses the grammar, or ``load`` fails.
            Unsupported: ``load`` fails.
        """
        vocabulary = self.load()
        for part in (*grammar.parts, grammar):  # the error of a part names the part
            _check(part)
        matcher = self._matcher(grammar, vocabulary)
        if matcher.is_error():
            for part in grammar.parts:
                self.compile(part)  # raises for the part at fault
            raise _refusal(grammar, _reason(matcher))
        if grammar.before and not grammar.parts and grammar.kind in ("regex", "lark", "gbnf"):
            self.compile(replace(grammar, before=""))
        elif matcher.is_accepting() and set(_members(matcher.compute_bitmask()).tolist()) <= set(vocabulary.eos_tokens):
            raise _refusal(grammar, "only an empty text matches it; add a text or an expression, or leave it out")
        return matcher

    def _matcher(self, grammar: Grammar, vocabulary: LLTokenizer) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        def make() -> LLMatcher:
            matcher = LLMatcher(vocabulary, source, log_level=0, limits=limits)
            if not matcher.is_error():
                mask = matcher.compute_bitmask()  # the first one is slow: compute it here, not in the engine
                first = _members(mask)[:1].tolist()
                if first and matcher.try_consume_tokens(first):  # too large a grammar fails here
                    matcher.rollback(1)
            return matcher

        source = _after(grammar.before, _source(grammar))
        limits = LLParserLimits(max_lexer_states=MAX_STATES, initial_lexer_fuel=INITIAL_FUEL)
        return _on_large_stack(make)

    def load(self) -> LLTokenizer:
        """The vocabulary in the library's form. The first call takes about a second, in which no other thread runs.

        Raises:
            InvalidArgument: the target has no tokenizer.
            Unsupported: llguidance is not installed, or cannot read the tokenizer.
        """
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = self._read_vocabulary()
            return self._vocabulary

    def _read_vocabulary(self) -> LLTokenizer:
        if self._tokenizer is None:
            raise InvalidArgument("a grammar needs a tokenizer; the model was loaded without one")
        try:
            from llguidance.hf import from_tokenizer
        except ImportError as error:
            raise Unsupported(f"a grammar needs llguidance ({error}); pip install 'suffolk[openai]'") from None
        try:
            return from_tokenizer(self._tokenizer, self._vocab_size, sorted(self._eos_ids) or None)
        except USER_CODE_ERRORS as error:
            kind = type(self._tokenizer).__name__
            raise Unsupported(f"a grammar cannot use the tokenizer {kind}: {first_line(error)}") from error


def _members(mask: bytes) -> npt.NDArray[np.intp]:
    """The tokens of a bit mask, in order."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little"))


def _on_large_stack(work: Callable[[], LLMatcher]) -> LLMatcher:
    """The result of ``work``, which runs in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        with _STACK_LOCK:
            before = threading.stack_size(STACK_BYTES)
            try:
                future = pool.submit(work)  # starts the thread
            finally:
                threading.stack_size(before)
        return future.result()


def _source(grammar: Grammar) -> str:
    """The grammar in the library's form."""
    from llguidance import LLMatcher

    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(_ESCAPE.sub(lambda found: _ASCII.get(found[0], found[0]), grammar.text))
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.text)
    if grammar.kind == "gbnf":
        return LLMatcher.grammar_from_lark(_lark(grammar))
    try:
        return LLMatcher.grammar_from_json_schema(grammar.text or '{"type": "object"}', JSON_OPTIONS, None)
    except ValueError as error:  # nested too deeply, or unknown options under "x-guidance"
        raise _refusal(grammar, first_line(error)) from None


def _after(rules: str, source: str) -> str:
    """A grammar whose text is first a text of the rule ``before`` in ``rules``, and then a text of ``source``."""
    if not rules:
        return source
    own = json.loads(source)["grammars"][0] if source.startswith("{") else {"lark_grammar": source}
    return json.dumps({"grammars": [{"lark_grammar": f"start: before @own\n{rules}"}, own | {"name": "own"}]})


def _refusal(grammar: Grammar, reason: str) -> RefusedGrammar:
    return grammar.refusal(f"is refused: {reason}", f"grammar ({grammar.kind})")


def _check(grammar: Grammar) -> None:
    """Raises RefusedGrammar for references in a circle, for too many intersections, and for numbers that the library cannot
    hold. Some of these numbers would end the process.
    """
    try:
        if grammar.kind == "json_schema":
            schemas = [json.loads(grammar.text)]
            cycle = schema_cycle(schemas[0])
        elif grammar.kind in ("lark", "gbnf"):
            rules = _lark(grammar) if grammar.kind == "gbnf" else grammar.text
            if (count := intersections(rules)) > MAX_INTERSECTIONS:
                raise _refusal(
                    grammar, f"it has {count} times '&'; the limit is {MAX_INTERSECTIONS}, as more may take minutes"
                )
            cycle, schemas = rule_cycle(rules), inner_schemas(rules)
        else:
            return
    except RecursionError:
        raise _refusal(grammar, "it is nested too deeply; simplify it") from None
    if cycle:
        raise _refusal(
            grammar, f"{cycle} is a circle of references, which no text can match; end it with a type or a text"
        )
    if number := next(filter(None, map(unheld_number, schemas)), ""):
        raise _refusal(grammar, f"{number} has too many digits to be held exactly; use a text, or another limit")


def _lark(grammar: Grammar) -> str:
    """Convert rules from llama.cpp's syntax to Lark's.

    The library's converter keeps escapes that Lark does not have, and drops zeros from other escapes. So escapes are rewritten
    before and after it.
    """
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        rules = _ESCAPE.sub(_short_escape, grammar.text)
        for _ in range(2):  # white space may stand on both sides of a comment
            rules = _FILLING.sub(_joined, rules)
        return _ESCAPE.sub(_lark_escape, gbnf_to_lark(rules))
    except IndexError:
        raise _refusal(grammar, "it ends in the middle of a text or class") from None
    except USER_CODE_ERRORS as error:  # plain Exceptions too, for example for a rule that does not exist
        raise _refusal(grammar, message_line(error)) from None


def _joined(found: re.Match[str]) -> str:
    """Drop a comment, or a line end before another alternative. The library's converter rejects this line end."""
    return found[1] or " " * found[0].isspace()


def _short_escape(found: re.Match[str]) -> str:
    r"""An escape of GBNF as ``\xHH``, or as the character itself."""
    digits = found[1] or found[2] or found[3]
    if not digits and (found[4].isalnum() or found[4] in '"\\'):
        return found[0]
    code = int(digits, 16) if digits else ord(found[4])
    if code < 0x100:
        return f"\\x{code:02x}"
    is_character = code < 0xD800 or 0xDFFF < code < 0x110000
    return chr(code) if is_character else found[0]  # the library says what is wrong


def _lark_escape(found: re.Match[str]) -> str:
    r"""``\xHH`` in the form of Lark's strings and character classes."""
    return f"\\u00{found[1]}" if found[1] else found[0]


def _reason(matcher: LLMatcher) -> str:
    """The library's message without the dump of its state."""
    lines = str(matcher.get_error()).partition("<state>")[0].split("\n")
    return " ".join(line.strip() for line in lines if line.strip())
