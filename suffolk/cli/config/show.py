"""Print the settings of a command, with the origin of each: default, file or command line.

COMMAND is generate, worker, serve, train or capacity, followed by its options. Without COMMAND, the
settings of all five are printed. The output is TOML with a line of help for each key, and can be
given to --config. Settings without an option of their own are set in that file, or with --set
NAME=VALUE.

Keys at the top of a file apply to all commands that have these settings. A table such as [worker]
applies to one command, and its keys win over the keys at the top.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from suffolk.cli.options import setting
from suffolk.cli.options.config_file import COMMANDS, UNSET, command_settings, read_config
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import merge
from suffolk.cli.options.setting import Given, Setting
from suffolk.datastore.checks import nearest
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import REQUIRED, argument, option

EXAMPLES = """
suffolk config show                                              every setting of every command, with its default
suffolk config show --config suffolk.toml
suffolk config show generate --temperature 0.7 --config suffolk.toml
suffolk config show worker > worker.toml                         a file to begin with"""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    """Options if no command is named. The options of a named command follow its name."""

    command: str | None = argument(None, f"{', '.join(COMMANDS)}, and its options", metavar="COMMAND [OPTIONS]")
    config: Path | None = option(None, "the file that the command would read", metavar="FILE.toml")


def run(options: Options) -> None:
    """Print the settings of all commands, or of the command that follows --config."""
    if options.command not in (None, *COMMANDS):
        raise _unknown(options.command)
    for place, command in enumerate(COMMANDS if options.command is None else (options.command,)):
        settings = command_settings(command)
        given = {} if options.config is None else read_config(options.config, command)
        lines = toml_lines(command, settings, given)
        print("\n".join([*([""] if place else []), *lines]))


def run_words(words: Sequence[str]) -> int | None:
    """Print the settings of the command that ``words`` begin with. Returns None if they begin with no command.

    Raises InvalidArgument if an option of a command is given without the command.
    """
    if not words or words[0] not in COMMANDS:
        flags = [word.partition("=")[0] for word in words if word.startswith("-") and not word.startswith("--config")]
        if flags and not words[0].startswith("-"):
            raise _unknown(words[0])
        if flags:
            form = f"suffolk config show COMMAND {flags[0]} ..."
            raise InvalidArgument(f"{flags[0]} belongs to a command; write '{form}' with one of {', '.join(COMMANDS)}")
        return None
    command, *rest = words
    settings = command_settings(command, rest)
    given = merge(make_parser(f"suffolk {command}", "", "", settings), settings, command, rest)
    print("\n".join(toml_lines(command, settings, given)))
    return 0


def _unknown(command: str | None) -> InvalidArgument:
    near = nearest(command or "", COMMANDS)
    return InvalidArgument(f"{command} reads no file{near}; the commands that do are {', '.join(COMMANDS)}")


def toml_lines(command: str, settings: Mapping[str, Setting], given: Mapping[str, Given]) -> Iterator[str]:
    """The merged settings of ``command`` as a TOML table, with the help and the origin of each setting as comments."""
    yield f"[{command}]"
    for group, members in _groups(settings).items():
        yield f"\n# -- {group or 'general'} --"
        for each in members:
            named = all(choice in each.help for choice in each.choices)
            limits = "" if not each.limits or (each.choices and named) else f" ({each.limits})"
            yield from wrap(f"{each.help}{limits}", 100, initial_indent="# ", subsequent_indent="#   ")
            value = given[each.name].value if each.name in given else each.default
            origin = given[each.name].origin if each.name in given else "default"
            if value is None or value is REQUIRED:
                yield f"# {each.name} =  # {'required' if value is REQUIRED else 'not set'}"
            else:
                yield f"{each.name} = {_toml(value)}  # {origin}"


def default_text(setting: Setting) -> str:
    """The default of ``setting`` as TOML; "required" if there is none, empty if it is None."""
    return "required" if setting.default is REQUIRED else "" if setting.default is None else _toml(setting.default)


def _groups(settings: Mapping[str, Setting]) -> dict[str, list[Setting]]:
    groups: dict[str, list[Setting]] = {}
    for name, each in settings.items():
        if name not in UNSET:
            groups.setdefault(each.group, []).append(each)
    return groups


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
