"""Grammars for tests, and an oracle that parses every text from the start."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import jsonschema
import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar import Grammar
from suffolk.serving.decoding.engine.sampling.grammar_compiler import GrammarCompiler
from tests.support.tiny_models import tiny_model, tiny_tokenizer

END = 256
"""The end-of-text token of ``tiny_tokenizer``."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["colour", "count", "flags"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
GRAMMARS = {
    "schema": Grammar("json_schema", json.dumps(SCHEMA)),
    "object": Grammar("json_object"),
    "open end": Grammar("regex", "(ab|a|é)+"),
    "closed end": Grammar("regex", "[a-c]{3,9}!"),
    "rules": Grammar("lark", 'start: "<t>" %json {"type": "boolean"} "</t>"'),
}


def ending_target() -> Target:
    """A tiny model with a tokenizer and an end-of-text token."""
    model = tiny_model(vocab_size=257, max_position_embeddings=4096)
    model.generation_config.eos_token_id = END
    return Target.wrap(model, tiny_tokenizer(), "tiny")


def tokens_of(text: str) -> list[int]:
    return list(tiny_tokenizer()(text)["input_ids"])


class Oracle:
    """Parses every text from the start, with a separate parser."""

    def __init__(self, target: Target, grammar: Grammar) -> None:
        self._compiled = GrammarCompiler.of(target).compile(grammar)
        self._vocab_size = target.vocab_size
        self._followed: dict[tuple[int, ...], npt.NDArray[np.bool_]] = {}

    def accepts(self, text: Iterable[int]) -> bool:
        """Whether ``text`` is a prefix of a text of the grammar."""
        return self._parsed(text) is not None

    def is_whole(self, text: Iterable[int]) -> bool:
        """Whether ``text`` is a text of the grammar."""
        parsed = self._parsed(text)
        return parsed is not None and parsed.is_accepting()

    def following(self, text: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return bool[vocab], the tokens that may follow ``text``. Each token is tried, once for each text: this takes long."""
        key = tuple(text)
        if key not in self._followed:
            tokens = range(self._vocab_size) if self.accepts(text) else ()
            found = [token for token in tokens if self.accepts([*text, token])]
            self._followed[key] = np.isin(np.arange(self._vocab_size), found)
        return self._followed[key]

    def _parsed(self, text: Iterable[int]) -> LLMatcher | None:
        parser = self._compiled.deep_copy()
        return parser if all(parser.try_consume_tokens([token]) for token in text) else None


def check_text(grammar: Grammar, text: str) -> None:
    """Assert that a complete ``text`` of a JSON grammar is JSON, and fits its schema."""
    if grammar.kind == "json_object":
        assert isinstance(json.loads(text), dict)
    elif grammar.kind == "json_schema":
        jsonschema.validate(json.loads(text), json.loads(grammar.text))
