"""Settings as 'suffolk config show' prints them: TOML with their origins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

from suffolk.cli.options.config_file import UNSET
from suffolk.cli.options.setting import REQUIRED, Given, Setting


def toml_lines(command: str, settings: Mapping[str, Setting], given: Mapping[str, Given]) -> Iterator[str]:
    """The merged settings of ``command`` as a TOML table, with the help and the origin of each setting as comments."""
    yield f"[{command}]"
    for group, members in _groups(settings):
        yield f"\n# -- {group or 'general'} --"
        for setting in members:
            named = all(each in setting.help for each in setting.choices)
            limits = "" if not setting.limits or (setting.choices and named) else f" ({setting.limits})"
            yield from wrap(f"{setting.help}{limits}", 100, initial_indent="# ", subsequent_indent="#   ")
            value = given[setting.name].value if setting.name in given else setting.default
            origin = given[setting.name].origin if setting.name in given else "default"
            if value is None or value is REQUIRED:
                yield f"# {setting.name} =  # {'required' if value is REQUIRED else 'not set'}"
            else:
                yield f"{setting.name} = {_toml(value)}  # {origin}"


def default_text(setting: Setting) -> str:
    """The default of ``setting`` as TOML; "required" if there is none, empty if it is None."""
    return "required" if setting.default is REQUIRED else "" if setting.default is None else _toml(setting.default)


def _groups(settings: Mapping[str, Setting]) -> list[tuple[str, list[Setting]]]:
    shown = [each for name, each in settings.items() if name not in UNSET]
    order = list(dict.fromkeys(each.group for each in shown))
    grouped = groupby(sorted(shown, key=lambda each: order.index(each.group)), key=lambda each: each.group)
    return [(group, list(members)) for group, members in grouped]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    return str(value)
