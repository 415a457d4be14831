"""Reads values of settings from texts and TOML, and checks their types and ranges."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suffolk.cli.options.setting import Setting
from suffolk.datastore.checks import unknown
from suffolk.datastore.errors import InvalidArgument

_PATHS = ("CORPUS", "FILE", "MODEL", "STORE", "TOK", "[NAME=]STORE")
"""Placeholders of texts that may be paths."""
_HOME = re.compile(r"^((?:[\w.-]+=)?)~(?=/|$)")


def read_texts(setting: Setting, texts: Sequence[str], label: str) -> Any:
    """The value of ``setting`` from words of a command line. Raises InvalidArgument, which names ``label``."""
    values = [_read_text(setting, text, label) for text in texts]
    if setting.kind is dict:
        return {name: value for each in values for name, value in each.items()}
    return tuple(values) if setting.many else values[-1]


def read_value(setting: Setting, value: Any, label: str) -> Any:
    """The value of ``setting`` from TOML. Raises InvalidArgument, which names ``label``."""
    if setting.many:
        values = value if isinstance(value, list) else [value]
        return tuple(_checked(setting, each, label) for each in values)
    return _checked(setting, value, label)


def comma_list(text: str) -> tuple[str, ...]:
    """The parts of ``text`` between commas, without spaces around them. Empty parts are left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _read_text(setting: Setting, text: str, label: str) -> Any:
    value: object = text
    if setting.kind is dict:
        return _pair(text, label)
    if setting.kind is bool:
        value = {"true": True, "false": False}.get(text.lower(), text)
    elif setting.kind in (int, float) and setting.read is None:
        try:
            value = setting.kind(text)
        except ValueError:
            raise _wrong(setting, text, label) from None
    return _checked(setting, value, label)


def _checked(setting: Setting, value: Any, label: str) -> Any:
    if setting.read is not None and isinstance(value, str):
        try:
            value = setting.read(value)
        except ValueError:
            raise _wrong(setting, value, label) from None
    if setting.kind is float and type(value) is int:
        value = float(value)
    if setting.kind in (str, Path):
        if isinstance(value, str) and not (value.strip() or setting.blank or setting.choices):
            what = setting.help.partition(". ")[0]
            raise InvalidArgument(f"{label}: it is empty; give {setting.metavar}: {what}")
        if not isinstance(value, str):
            raise _wrong(setting, value, label)
        if setting.kind is Path and "://" in value:
            raise InvalidArgument(f"{label} is {value!r}, a URL; name a place on this machine")
        is_path = setting.kind is Path or setting.metavar in _PATHS
        value = setting.kind(at_home(value) if is_path else value)
    elif type(value) is not setting.kind:
        raise _wrong(setting, value, label)
    if setting.choices and value not in setting.choices:
        raise unknown(label, value, setting.choices)
    if setting.within is not None and value not in setting.within:
        raise InvalidArgument(f"{label} is {value}; it must be {setting.limits}")
    if value != value:  # NaN
        raise _wrong(setting, value, label)
    return value


def at_home(text: str) -> str:
    """``text`` with the home folder in place of ~. Shells do not replace ~ in --option=~/x, nor in files of settings."""
    return _HOME.sub(lambda found: found[1] + os.path.expanduser("~"), text)


def _pair(text: str, label: str) -> dict[str, Any]:
    """The name and value of NAME=VALUE. The value is JSON, or else a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidArgument(f"{label} {text!r}: write it as NAME=VALUE")
    try:
        return {name: json.loads(value)}
    except ValueError:
        return {name: value}


def _wrong(setting: Setting, value: Any, label: str) -> InvalidArgument:
    return InvalidArgument(f"{label} is {value!r}; it must be {setting.domain}")
