"""Fields of requests that this worker does not have: misspelled fields, and fields of other servers.

A field that would change the answer is refused, unless its value asks for nothing. A name that nearly equals a known field's name
is refused too. Other unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker.openai.other_fields import IGNORED, INSTEAD, MEANINGFUL, NEUTRAL

if TYPE_CHECKING:
    from typing_extensions import Self

_ALIKE = 0.8
"""Least similarity of a misspelled name, as difflib counts it."""


class Body(BaseModel):
    """Base of all bodies.

    ``path``: path of the object in its request, with a dot at its end. ``unused``: fields that have no effect on this path.
    """

    model_config = ConfigDict(strict=True, extra="allow")
    path: ClassVar[str] = ""
    unused: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="after")
    def _check_extra(self) -> Self:
        extra = {name: value for name, value in (self.model_extra or {}).items() if name not in self.unused}
        check_extra(self.path, extra, {name: getattr(self, name) for name in type(self).model_fields})
        return self


def check_extra(path: str, extra: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Raises InvalidField for the first field of ``extra`` that must not be ignored.

    Args:
        path: path of the object in the request, with a dot at its end; empty for the request itself.
        extra: the fields that the object does not have, by name.
        fields: the fields that the object has, by name. A field of another server may repeat the value of one of these.
    """
    for name, value in extra.items():
        if value is None or name in IGNORED:
            continue
        if name in NEUTRAL:
            asks = value or name in MEANINGFUL
            if asks and value not in NEUTRAL[name] and value != fields.get(INSTEAD.get(name, "")):
                raise InvalidField(path + name, f": this worker does not support it; {_advice(name)}")
        elif near := meant(name, (*fields, *IGNORED, *NEUTRAL)):
            is_lacked = near in NEUTRAL and near not in fields
            also = f" This worker does not support it; {_advice(near)}" if is_lacked else ""
            raise InvalidField(path + name, f": unknown field; did you mean {near}?{also}")


def check_names(
    path: str, given: Mapping[str, Any], names: Iterable[str], other: Mapping[str, str] | None = None
) -> None:
    """Raises InvalidField for a field of an object in a request that is nearly one of ``names``, which the object lacks.

    ``path``: path of the object, with a dot at its end. ``other``: names of other APIs -> those here.
    """
    missing = [name for name in names if given.get(name) is None]
    for name in [name for name, value in given.items() if value is not None and name not in names]:
        near = (other or {}).get(name) or meant(name, missing)
        if near in missing:
            raise InvalidField(path + name, f": unknown field; did you mean {near}?")


def is_known(name: str) -> bool:
    """Whether a field that the worker lacks belongs to another server."""
    return name in IGNORED or name in NEUTRAL


def meant(name: str, known: Iterable[str]) -> str:
    """The one of ``known`` that is ``name`` in another style, such as topP, or is nearly ``name``; empty without one."""
    names = list(known)
    same = next((each for each in names if _letters(each) == _letters(name)), "")
    return same or next(iter(get_close_matches(name, names, 1, _ALIKE)), "")


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _advice(name: str) -> str:
    """What to do instead of a field that is refused."""
    return f"use {INSTEAD[name]}" if name in INSTEAD else "leave it out"
