"""A grammar: the formal language that a request's text must be in. Imports no grammar library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from dataclasses import field as dataclass_field

from suffolk.datastore.checks import check_choice
from suffolk.datastore.errors import Field, InvalidArgument

KINDS = ("json_object", "json_schema", "regex", "lark", "gbnf")
MAX_GRAMMAR = 1 << 18
"""The most characters of a grammar's text."""


class RefusedGrammar(InvalidArgument):
    """InvalidArgument for a grammar. The message begins with ``name``: the grammar's path in the request, and further words."""

    def __init__(self, name: str, text: str) -> None:
        field, *words = name.partition(" ")
        super().__init__(Field(field), *words, text)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language that constrains a text. Checked when made; immutable.

    A new request compiles its grammar with llguidance. InvalidArgument names the part that llguidance refuses.

    Attributes:
        kind: ``json_object`` (any JSON object), ``json_schema`` (JSON Schema, draft 2020-12), ``regex`` (the Rust syntax, for the
            whole text; digits and word characters are ASCII), ``lark`` (a context-free grammar in llguidance's Lark syntax) or
            ``gbnf`` (the same in llama.cpp's syntax).
        text: the schema as JSON, the expression or the rules; empty for ``json_object``. At most 2^18 characters.
        field: for messages: the grammar's path in the request, for example ``guided_json``, and further words that name it.
        parts: grammars that ``text`` contains. If the whole is refused, a message names the part at fault.
        before: Lark rules with a rule ``before``, whose text comes first and does not belong to the language; empty for none.

    Raises:
        RefusedGrammar: the kind is unknown, the text is too long or missing, or a schema is not a JSON object.
    """

    kind: str
    text: str = ""
    field: str = dataclass_field(default="", compare=False)
    parts: tuple[Grammar, ...] = dataclass_field(default=(), compare=False, repr=False)
    before: str = ""

    def __post_init__(self) -> None:
        check_choice("grammar", self.kind, KINDS, ".kind")
        if not isinstance(self.text, str):
            raise InvalidArgument(Field("grammar"), f".text is of type {type(self.text).__name__}; it must be a text")
        if len(self.text) > MAX_GRAMMAR:
            raise self.refusal(f"has {len(self.text)} characters; the limit is {MAX_GRAMMAR}")
        if (self.kind == "json_object") != (not self.text):
            raise self.refusal(
                f"has {len(self.text)} characters; {self.kind} takes "
                + ("none; use json_schema for a schema" if self.text else "the schema, expression or rules")
            )
        if self.kind == "json_schema":
            self._check_schema()

    def refusal(self, reason: str, name: str = "grammar.text") -> RefusedGrammar:
        """An error that names the field, or ``name`` if the field is empty."""
        return RefusedGrammar(self.field or name, f" {reason}")

    def _check_schema(self) -> None:
        try:
            schema = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise self.refusal(f"is no JSON ({error}); give the schema as JSON") from None
        if not isinstance(schema, dict):
            raise self.refusal(f"is the JSON of a {type(schema).__name__}; a schema is an object")
