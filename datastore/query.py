"""Selects documents by conditions on their source and metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from suffolk.datastore.arguments import check_texts
from suffolk.datastore.documents import Origin
from suffolk.datastore.errors import InvalidArgument

CONDITION = re.compile(r"([^=!~]+)(!=|=|~)(.*)", re.DOTALL)
OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "=": str.__eq__,
    "!=": str.__ne__,
    "~": fnmatchcase,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A field, an operator (``=``, ``!=``, or ``~`` for a glob), and the operand."""

    field: str
    operator: str
    operand: str

    def holds(self, origin: Origin) -> bool:
        """Whether the condition is true. Numbers and booleans are compared as JSON. For a missing field, only ``!=`` is true."""
        value = origin.source if self.field == "source" else origin.metadata.get(self.field)
        if value is None:
            return self.operator == "!="
        text = value if isinstance(value, str) else json.dumps(value)
        return OPERATORS[self.operator](text, self.operand)


@dataclass(frozen=True, slots=True)
class Query:
    """Selects documents for which all ``conditions`` are true. If ``sources`` is not empty, it must also contain the document's
    source."""

    sources: Collection[str]
    conditions: tuple[Condition, ...]

    def matches(self, origin: Origin) -> bool:
        """Whether a document of this origin is selected."""
        if self.sources and origin.source not in self.sources:
            return False
        return all(condition.holds(origin) for condition in self.conditions)

    def require_fields(self, known: Collection[str]) -> None:
        """Refuse conditions on fields that no document has. With a misspelt field, ``!=`` would select all documents.

        Raises:
            InvalidArgument: names the field and the known ones.
        """
        for condition in self.conditions:
            if condition.field not in known:
                raise InvalidArgument(
                    f"no document has the field {condition.field!r}; the fields are {', '.join(sorted(known))}, "
                    "and the operators =, != and ~"
                )


def parse_query(sources: Sequence[str], where: Sequence[str]) -> Query:
    """The query of sources and of conditions such as ``license=mit``, ``fork!=true`` and ``source~*/vendor/*``.

    Raises:
        InvalidArgument: nothing is given, or a condition cannot be parsed; the message quotes it.
    """
    check_texts("ids", sources)
    check_texts("where", where)
    if not sources and not where:
        raise InvalidArgument(
            "neither ids nor conditions are given; name the documents, for example by license=gpl-3.0"
        )
    return Query(frozenset(sources), tuple(map(_parse, where)))


def _parse(text: str) -> Condition:
    found = CONDITION.fullmatch(text)
    if found is None:
        raise InvalidArgument(
            f"condition {text!r}: not of the form field=value, field!=value or field~glob, such as license=gpl-3.0"
        )
    return Condition(*found.groups())
