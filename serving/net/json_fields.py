"""Types of fields in JSON bodies, for values that clients write in several ways."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, model_validator

from suffolk.serving.net.http_body import InvalidField


def whole(value: Any) -> Any:
    """A whole float as an integer; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[int, BeforeValidator(whole)]
"""An integer, or a whole float such as 8.0. Not for items of long lists, because each would be checked in Python."""


class _OrNull:
    """Annotation of a field of a ``NullsBody`` that accepts null. Null becomes the default, so the value is never
    null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        # unlike a Python validator, this does not read long lists twice
        return {"type": "nullable", "schema": handler(source)}


OR_NULL = _OrNull()


class NullsBody(BaseModel):
    """A body without unknown keys, in which an optional key with null counts as absent."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="after")
    def _leave_nulls_out(self) -> NullsBody:
        for name in [name for name in self.model_fields_set if getattr(self, name) is None]:
            setattr(self, name, type(self).model_fields[name].get_default(call_default_factory=True))
            self.model_fields_set.discard(name)
        return self


class ClosedObject(BaseModel):
    """An object of a body. Keys without a field in this class are refused.

    ``path``: path of the object, with a dot at its end. ``off``: keys that other servers know, and that may be null or false.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    path: ClassVar[str]
    off: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, given: Any) -> Any:
        """Raises InvalidField for an unknown key, with the known ones."""
        if not isinstance(given, dict):
            return given
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        found = {key: value for key, value in given.items() if value not in (None, False) or key not in cls.off}
        if unknown := next((key for key in found if key not in keys), ""):
            raise InvalidField(cls.path + unknown, f": unknown key; the keys are {', '.join(keys)}")
        return found
