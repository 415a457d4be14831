"""Print the settings of a command, with the origin of each: default, file or command line.

COMMAND is generate, worker, serve, train or capacity, followed by its options. Without COMMAND, the
settings of all five are printed. The output is TOML with a line of help for each key, and can be
given to --config. Settings without an option of their own are set in that file, or with --set
NAME=VALUE.

Keys at the top of a file apply to all commands that have these settings. A table such as [worker]
applies to one command, and its keys win over those at the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.options import setting
from suffolk.cli.options.config_file import COMMANDS, command_settings, read_config
from suffolk.cli.options.listing import toml_lines
from suffolk.cli.options.parser import make_parser
from suffolk.cli.options.reading import merge
from suffolk.cli.options.setting import argument, option
from suffolk.datastore.errors import InvalidArgument

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


def run(options: Options) -> int:
    """Print the settings of all commands; returns the exit code."""
    if options.command is not None:
        raise InvalidArgument(f"{options.command} reads no file; the commands that do are {', '.join(COMMANDS)}")
    for place, command in enumerate(COMMANDS):
        settings = command_settings(command)
        given = {} if options.config is None else read_config(options.config, command)
        lines = toml_lines(command, settings, given)
        print("\n".join([*([""] if place else []), *lines]))
    return 0


def run_words(words: Sequence[str]) -> int | None:
    """Print the settings of the command that ``words`` begin with; None if they begin with none."""
    if not words or words[0] not in COMMANDS:
        return None
    command, *rest = words
    settings = command_settings(command, rest)
    given = merge(make_parser(f"suffolk {command}", "", "", settings), settings, command, rest)
    print("\n".join(toml_lines(command, settings, given)))
    return 0
