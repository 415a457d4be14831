"""Fields of requests that this worker does not have: misspelled fields, and fields of other servers.

A field that would change the answer is refused, unless its value asks for nothing. A name that nearly equals a known field's name
is refused too. Other unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from suffolk.serving.net.http_body import InvalidField
from suffolk.serving.worker.openai.other_fields import IGNORED, OTHER

_ALIKE = 0.8
"""Least similarity of a misspelled name, as difflib counts it."""
_MOST_UNKNOWN = 100
"""The most fields of an object that it does not have. Each is compared with all known names."""


class Body(BaseModel):
    """Base of all bodies.

    ``path``: path of the object in its request, with a dot at its end. ``unused``: fields that have no effect on this path.
    ``instead``: fields of other paths that this one refuses -> what to use, as in ``check_extra``.
    """

    model_config = ConfigDict(strict=True, extra="allow")
    path: ClassVar[str] = ""
    unused: ClassVar[frozenset[str]] = frozenset()
    instead: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="after")
    def _check_extra(self) -> Body:
        extra = {name: value for name, value in (self.model_extra or {}).items() if name not in self.unused}
        self._check({name: getattr(self, name) for name in type(self).model_fields}, extra)
        return self

    @classmethod
    def check_given(cls, given: Mapping[str, Any]) -> None:
        """Raises InvalidField for a field of a request that must not be ignored. The values are not checked."""
        fields = {name: given.get(name) for name in cls.model_fields}
        cls._check(fields, {name: value for name, value in given.items() if name not in fields})

    @classmethod
    def _check(cls, fields: dict[str, Any], extra: Mapping[str, Any]) -> None:
        refused = {name: fields.pop(name) for name in cls.instead if name in fields}
        check_extra(cls.path, {**refused, **extra}, fields, cls.instead)


def check_extra(
    path: str, extra: Mapping[str, Any], fields: Mapping[str, Any], instead: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raises InvalidField for the first field of ``extra`` that must not be ignored.

    Args:
        path: path of the object in the request, with a dot at its end; empty for the request itself.
        extra: the fields that the object does not have, by name.
        fields: the fields that the object has, by name. A field of another server may repeat the value of one of these.
        instead: fields that other paths have -> what to use for this object. It counts before ``OTHER``.
    """
    _check_unknown_count(path, len(extra))
    for name, value in extra.items():
        if value is None or name in IGNORED:
            continue
        if name in instead or name in OTHER:
            use = _use(name, fields, instead)
            is_asked = OTHER[name].asks(value) if name in OTHER else value is not False
            if is_asked and value != fields.get(use):
                raise InvalidField(path + name, f": not supported here; {_advice(use)}")
        elif (parts := name.split(".", 1))[0] in fields and len(parts) > 1:
            raise InvalidField(path + name, f': unknown field; give {{"{parts[0]}": {{"{parts[1]}": ...}}}}')
        elif near := meant(name, (*fields, *IGNORED, *OTHER)):
            is_lacked = near in OTHER and near not in fields
            also = f" It is not supported here; {_advice(_use(near, fields, instead))}" if is_lacked else ""
            raise InvalidField(path + name, f": unknown field; did you mean {near}?{also}")


def check_names(
    path: str, given: Mapping[str, Any], names: Iterable[str], other: Mapping[str, str] | None = None
) -> None:
    """Raises InvalidField for a field of an object in a request that is nearly one of ``names``, which the object lacks.

    ``path``: path of the object, with a dot at its end. ``other``: names of other APIs -> those here.
    """
    missing = [name for name in names if given.get(name) is None]
    unknown = [name for name, value in given.items() if value is not None and name not in names]
    _check_unknown_count(path, len(unknown))
    for name in unknown:
        near = (other or {}).get(name) or meant(name, missing)
        if near in missing:
            raise InvalidField(path + name, f": unknown field; did you mean {near}?")


def _check_unknown_count(path: str, unknown: int) -> None:
    if unknown > _MOST_UNKNOWN:
        raise InvalidField(
            path.removesuffix("."), f": {unknown} unknown fields; the limit is {_MOST_UNKNOWN}; leave them out"
        )


def is_of_another_server(name: str) -> bool:
    """Whether a field that the worker lacks belongs to another server."""
    return name in IGNORED or name in OTHER


def meant(name: str, known: Iterable[str]) -> str:
    """The one of ``known`` that is ``name`` in another style, such as topP, or is nearly ``name``; empty without one."""
    names = list(known)
    same = next((each for each in names if _letters(each) == _letters(name)), "")
    return same or next(iter(get_close_matches(name, names, 1, _ALIKE)), "")


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _use(name: str, fields: Mapping[str, Any], instead: Mapping[str, str]) -> str:
    """What to use in place of the field ``name``, which the object lacks; empty if there is nothing."""
    use = instead.get(name) or _other_use(name)
    while use in instead or (_other_use(use) and use not in fields):
        use = instead.get(use) or _other_use(use)
    return use


def _other_use(name: str) -> str:
    return OTHER[name].use if name in OTHER else ""


def _advice(use: str) -> str:
    return f"use {use}" if use else "leave it out"
