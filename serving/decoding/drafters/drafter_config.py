"""The drafters to load, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.drafters.drafter_entry import Options
from suffolk.serving.decoding.drafters.registry import find, known


@dataclass(frozen=True, init=False)
class DrafterConfig:
    """Options of drafters, as on the command line: ``DrafterConfig(draft_model="small/", head=["eagle/"])``.

    Attributes:
        names: drafters that are loaded even if none of their options is given.
        dtype: data type of drafters' models, as in ``Target.load``.
        options: values by their options' names (``DrafterOption.name``).
    """

    names: tuple[str, ...]
    dtype: str
    options: Mapping[str, Any]

    def __init__(self, *names: str, dtype: str = "auto", **options: Any) -> None:
        """Options whose value is None, False or an empty list are ignored.

        Raises:
            InvalidArgument: a drafter or an option is unknown, or the value of a repeatable option is not a list.
            Unsupported: as ``find``.
        """
        named = [find(name) for name in names]
        entries = [*named, *(entry for entry in known() if entry.needs_option)]
        existing = {option.name: option for entry in entries for option in entry.options}
        for name, value in options.items():
            if name not in existing:
                near = get_close_matches(name, existing, 1, 0)
                raise InvalidArgument(Field(name), f" is not an option of a loaded drafter; the nearest is {near[0]}")
            if existing[name].repeated and not isinstance(value, list | tuple):
                raise InvalidArgument(Field(name), f" is {value!r}; it must be a list")
        given = {
            name: [existing[name].kind(each) for each in value] if existing[name].repeated else value
            for name, value in options.items()
            if value is not None and value is not False and value not in ((), [])
        }
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "options", given)

    def parts(self) -> dict[str, Options]:
        """The drafters to load, by name, each with its options, in the order of the registry.

        Raises the errors of ``DrafterEntry.take`` of each drafter.
        """
        left, found = self.options, dict[str, Options]()
        for entry in known():
            if not entry.needs_option and entry.name not in self.names:
                continue
            taken = entry.taken(left)
            if taken is not None or entry.name in self.names:
                found[entry.name] = taken or {}
                left = _without(left, taken or {})
        return found


def _without(options: Options, taken: Options) -> Options:
    """``options`` without ``taken``. From a list, only the taken values are removed."""
    left = {name: value for name, value in options.items() if name not in taken}
    for name, values in taken.items():
        if isinstance(values, list):
            left[name] = [each for each in options[name] if each not in values]
    return left
