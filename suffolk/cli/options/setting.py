"""One setting of a command, and the dataclass fields that declare settings."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from suffolk.datastore.settings import Within, option

T = TypeVar("T")
COMMAND_LINE = "command line"
"""Origin of settings that are not from a file."""
_NOUNS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    bool: "true or false",
    dict: "a table",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting, as its field declares it.

    Attributes:
        name: name of the field, and key in a file.
        kind: int, float, str, bool, Path or dict; type of each item if ``many``.
        default: value if the setting is not given; REQUIRED if it must be given.
        help: one line.
        group: heading in the help.
        flag: name of the option.
        metavar: placeholder of its value in the help.
        rare: whether it has no option, but is set in a file or with --set.
        positional: whether it is an argument without a flag.
        many: whether the value is a tuple.
        several: whether one option takes several words.
        within: range of a number, from the field's annotation.
        choices: the allowed values.
        blank: whether a text may be empty.
        excludes: settings that cannot be given together with this one.
        written: whether it is a file that the command writes; no other setting may name that file.
        read: parser of the value's text, for values with a syntax of their own.
    """

    name: str
    kind: type
    default: Any
    help: str
    group: str = ""
    flag: str = ""
    metavar: str = ""
    rare: bool = False
    positional: bool = False
    many: bool = False
    several: bool = False
    within: Within | None = None
    choices: tuple[str, ...] = ()
    blank: bool = False
    excludes: tuple[str, ...] = ()
    written: bool = False
    read: Callable[[str], Any] | None = None

    @property
    def label(self) -> str:
        """The setting's name on the command line."""
        return self.name if self.rare else self.metavar if self.positional else self.flag

    @property
    def limits(self) -> str:
        """The choices or range in words; empty if there are none."""
        return f"one of {', '.join(self.choices)}" if self.choices else str(self.within or "")

    @property
    def domain(self) -> str:
        """The type and limits in words."""
        noun = "a size such as 500M" if self.read is not None else _NOUNS[self.kind]
        words = self.limits if self.choices else f"{noun} {self.limits}".strip()
        return f"a list, each {words}" if self.many else words


@dataclass(frozen=True, slots=True)
class Given:
    """A given value: its label in messages, and its origin: COMMAND_LINE or a file."""

    value: Any
    label: str
    origin: str


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the settings of all commands.

    Attributes:
        given: the settings that were given, by name. All others have their defaults.
        read_again: reads the settings again from the command line and its file. None if there is no command line.
    """

    given: Mapping[str, Given] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    read_again: Callable[[], Options] | None = dataclasses.field(default=None, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Assignable(Options):
    """Base of commands that take any setting as NAME=VALUE."""

    assignments: tuple[str, ...] = option(
        (),
        "set any setting, even one without an option; may be repeated",
        flag="--set",
        metavar="NAME=VALUE",
        group="settings",
    )


@dataclass(frozen=True, kw_only=True)
class Configurable(Assignable):
    """Base of commands that read settings from a file. Their rare settings have no option."""

    config: Path | None = option(
        None, "TOML file of settings; the command line wins over the file", metavar="FILE.toml", group="settings"
    )


def passed_on(options: Options, kind: type[T], **more: Any) -> T:
    """Make a ``kind`` from the fields of the same names in ``options``.

    ``more``: values of further fields. Raises what ``kind`` raises.
    """
    names = {each.name for each in dataclasses.fields(kind)} - more.keys()  # type: ignore[arg-type]
    return kind(**{name: getattr(options, name) for name in names if hasattr(options, name)}, **more)


def settings_of(options: type[Options], words: Sequence[str] = ()) -> dict[str, Setting]:
    """The settings of a command by name, in the order of its help.

    Args:
        options: dataclass of the settings. A method ``further(settings, words)`` of the dataclass, if it has one,
            returns more settings.
        words: command line, which may name plugins.
    """
    hints = typing.get_type_hints(options, include_extras=True)
    declared = {each.name: each for each in dataclasses.fields(options)}
    found: dict[str, Setting] = {}
    for each in _in_order(options):
        for name in each.__dict__.get("__annotations__", {}):
            if name in declared and "help" in declared[name].metadata:
                group = found[name].group if name in found else each.__dict__.get("GROUP", "")
                found[name] = _setting(declared[name], hints[name], group, issubclass(options, Configurable))
    further = getattr(options, "further", None)
    return found if further is None else found | further(found, words)


def _in_order(options: type) -> list[type]:
    """The class and its bases, each once. A class with a GROUP comes before its bases, a class without GROUP after them."""
    found: list[type] = []
    for base in options.__bases__:
        found += [each for each in _in_order(base) if each not in found]
    return [options, *found] if "GROUP" in options.__dict__ else [*found, options]


def _setting(field: dataclasses.Field[Any], hint: Any, group: str, has_file: bool) -> Setting:
    more: dict[str, Any] = {"group": group} | dict(field.metadata)
    more["rare"] = has_file and more.get("rare", False)
    if typing.get_origin(hint) is Annotated and typing.get_origin(typing.get_args(hint)[0]) is tuple:
        hint = typing.get_args(hint)[0]  # the dataclass checks the number of values
    many = typing.get_origin(hint) is tuple
    kind = typing.get_args(hint)[0] if many else hint
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = [each for each in typing.get_args(kind) if each is not type(None)]
    if typing.get_origin(kind) is Annotated:
        kind, allowed = typing.get_args(kind)
        more["within" if isinstance(allowed, Within) else "choices"] = allowed
    kind = typing.get_origin(kind) or kind
    flag = "--" + field.name.replace("_", "-")
    plain = {int: "N", Path: "FILE"}.get(kind, field.name.upper())
    metavar = "{" + ",".join(more["choices"]) + "}" if more.get("choices") else plain
    named = {"flag": flag, "metavar": metavar} | more
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return Setting(field.name, dict if issubclass(kind, Mapping) else kind, default, many=many, **named)
