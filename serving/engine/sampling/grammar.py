"""A grammar is the formal language that a request's text must be in. Loads no library."""

from __future__ import annotations

import json
from dataclasses import dataclass

from suffolk.datastore.errors import InvalidArgument

KINDS = ("json_object", "json_schema", "regex", "lark", "gbnf")
MAX_GRAMMAR = 1 << 18
"""Characters of a grammar's text."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language that constrains a text. Checked when made; immutable.

    A request compiles it when it is made, and then raises InvalidArgument with the part that the library refuses.

    Attributes:
        kind: ``json_object`` (any JSON object), ``json_schema`` (JSON Schema, draft 2020-12), ``regex`` (the Rust syntax, for the
            whole text), ``lark`` (a context-free grammar in llguidance's Lark syntax) or ``gbnf`` (the same in llama.cpp's syntax).
        text: the schema as JSON, the expression or the rules; empty for ``json_object``. At most 2^18 characters.

    Raises:
        InvalidArgument: the kind is unknown, the text is too long or missing, or a schema is not a JSON object.
    """

    kind: str
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidArgument(f"grammar.kind is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        if not isinstance(self.text, str):
            raise InvalidArgument(f"grammar.text is of type {type(self.text).__name__}; it must be a text")
        if len(self.text) > MAX_GRAMMAR:
            raise InvalidArgument(f"grammar.text has {len(self.text)} characters; the limit is {MAX_GRAMMAR}")
        if (self.kind == "json_object") != (not self.text):
            raise InvalidArgument(
                f"grammar.text has {len(self.text)} characters; {self.kind} takes "
                + ("none; use json_schema for a schema" if self.text else "the schema, expression or rules")
            )
        if self.kind == "json_schema":
            _check_schema(self.text)


def _check_schema(text: str) -> None:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"grammar.text is no JSON ({error}); give the schema as JSON") from None
    if not isinstance(schema, dict):
        raise InvalidArgument(f"grammar.text is the JSON of a {type(schema).__name__}; a schema is an object")
