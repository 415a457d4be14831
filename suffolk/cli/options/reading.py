"""Reads the options of a command from its words and its file, merges and checks them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from suffolk.cli.options.config_file import UNSET, read_config
from suffolk.cli.options.parser import Parser, parse_words
from suffolk.cli.options.setting import COMMAND_LINE, Given, Options, Setting
from suffolk.cli.options.values import read_texts
from suffolk.datastore.checks import nearest
from suffolk.datastore.errors import InvalidArgument

OptionsT = TypeVar("OptionsT", bound=Options)


def read_options(
    options: type[OptionsT], parser: Parser, settings: Mapping[str, Setting], command: str, words: Sequence[str]
) -> OptionsT:
    """The options of ``command`` that ``words`` give.

    Raises:
        InvalidArgument: an option or a key is unknown, a value is wrong, or a required one is missing.
        NotFound: the file of --config does not exist.
    """
    given = merge(parser, settings, command, words)
    _spare_inputs(settings, given)
    for name, setting in settings.items():
        if setting.default is MISSING and name not in given:
            noun = setting.metavar if setting.positional else f"{setting.flag} {setting.metavar}"
            raise InvalidArgument(f"{noun} is missing; see '{parser.prog} --help'")
    own = {each.name for each in fields(options)}
    values = {name: each.value for name, each in given.items()}
    further = {name: value for name, value in values.items() if name not in own}
    more: dict[str, Any] = {"drafter_values": further} if further else {}
    return options(given=given, **{name: values[name] for name in values.keys() & own}, **more)


def merge(parser: Parser, settings: Mapping[str, Setting], command: str, words: Sequence[str]) -> dict[str, Given]:
    """The settings that ``words`` and the file of --config give, by name.

    Where both set a value, ``words`` win. Raises the errors of ``read_options``.
    """
    texts = parse_words(parser, settings, words)
    given = {name: _given(settings[name], values, settings[name].label) for name, values in texts.items()}
    assigned: dict[str, list[str]] = {}
    for assignment in given["assignments"].value if "assignments" in given else ():
        name, equals, text = assignment.partition("=")
        name, dot, key = name.partition(".")
        if not equals:
            raise InvalidArgument(f"--set {assignment!r}: write it as NAME=VALUE")
        known = [each for each in settings if each not in UNSET]
        if name not in known:
            raise InvalidArgument(
                f"--set {assignment}: unknown name {name!r}{nearest(name, known)}; 'suffolk config show COMMAND' lists the names"
            )
        assigned.setdefault(name, []).append(f"{key}={text}" if dot else text)
    given |= {name: _given(settings[name], values, name) for name, values in assigned.items()}
    path: Path | None = given["config"].value if "config" in given else None
    from_file = {} if path is None or "assignments" not in settings else read_config(path, command, words)
    _exclude(settings, given)
    _exclude(settings, from_file)
    excluded = {other for name, each in given.items() if each.value is not False for other in settings[name].excludes}
    return {name: each for name, each in from_file.items() if name not in excluded} | given


def _spare_inputs(settings: Mapping[str, Setting], given: Mapping[str, Given]) -> None:
    """Raise an error if a file to write is also named by another setting."""
    for name in (name for name in given if name in settings and settings[name].written):
        each = given[name]
        for label, value in ((more.label, more.value) for other, more in given.items() if other != name):
            if any(_is_same_file(each.value, one) for one in (value if isinstance(value, tuple) else (value,))):
                raise InvalidArgument(
                    f"{each.label} {each.value} is also {label}, and would be overwritten; name another file"
                )


def _is_same_file(one: Any, other: Any) -> bool:
    """Whether both paths name the same existing file. Devices do not count as files."""
    with suppress(OSError, ValueError):
        return isinstance(other, str | Path) and os.path.isfile(one) and os.path.samefile(one, other)
    return False


def labels_of(settings: Mapping[str, Setting], given: Mapping[str, Given]) -> dict[str, str]:
    """The label of each setting: the form in which it was given, or else its option."""
    return {name: given[name].label if name in given else each.label for name, each in settings.items()}


def _given(setting: Setting, texts: list[str], label: str) -> Given:
    value: Any = read_texts(setting, texts, label)
    return Given(value, label, COMMAND_LINE)


def _exclude(settings: Mapping[str, Setting], given: Mapping[str, Given]) -> None:
    on = {name: each for name, each in given.items() if each.value is not False}
    for name, each in on.items():
        for other in settings[name].excludes:
            if other in on:
                raise InvalidArgument(f"{each.label} and {given[other].label} are both given; leave one of them out")
