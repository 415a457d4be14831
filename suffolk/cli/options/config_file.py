"""Reads the file of --config: TOML with keys for all commands, and a table for each command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suffolk.cli.commands import find_command
from suffolk.cli.options.setting import Given, Setting, settings_of
from suffolk.cli.options.values import read_value
from suffolk.datastore.checks import nearest
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.files import read_bounded
from suffolk.datastore.settings import parse_toml

COMMANDS = ("generate", "worker", "serve", "train", "capacity")
"""The commands that read a file."""
UNSET = ("config", "assignments")
"""Settings that can be given only on the command line."""


def command_settings(command: str, words: Sequence[str] = ()) -> dict[str, Setting]:
    """All settings of one of COMMANDS; ``words`` as in ``settings_of``."""
    return settings_of(find_command(command).options, words)


def read_config(path: Path, command: str, words: Sequence[str] = ()) -> dict[str, Given]:
    """The settings that the file gives to ``command``, by name.

    The command's table wins over keys at the top. Checks the whole file.

    Raises:
        NotFound, InvalidArgument: the file cannot be read, has an unknown key, or has a value of a wrong type or out of range.
    """
    document = read_toml(path)
    known = {
        name: {key: each for key, each in command_settings(name, words).items() if key not in UNSET}
        for name in COMMANDS
    }
    tables = {name: document.pop(name, {}) for name in COMMANDS}
    everything = {key: each for settings in known.values() for key, each in settings.items()}
    found = _table(path, "", document, everything | known[command])
    of_command = {key: given for key, given in found if key in known[command]}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InvalidArgument(f"{path}: {name} is {table!r}; it must be a table, [{name}]")
        for key, given in _table(path, name, table, known[name]):
            if name == command:
                of_command[key] = given
    return of_command


def read_toml(path: Path) -> dict[str, Any]:
    """The parsed file. Raises NotFound or InvalidArgument if it cannot be read, or is not TOML."""
    try:
        return parse_toml(read_bounded(path).decode("utf-8-sig"))
    except FileNotFoundError:
        raise NotFound(f"--config {path}: no such file; name a TOML file") from None
    except OSError as error:
        raise InvalidArgument(f"--config {path}: cannot be read ({error.strerror}); name a TOML file") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"--config {path}: is not UTF-8; save it as UTF-8") from None
    except ValueError as error:
        raise InvalidArgument(f"--config {path}: is not TOML ({error}); mend that line") from None


def _table(
    path: Path, name: str, table: Mapping[str, Any], known: Mapping[str, Setting]
) -> Iterator[tuple[str, Given]]:
    where = f" in [{name}]" if name else ""
    for key, value in table.items():
        if key not in known:
            command = f" {name}" if name else ""
            raise InvalidArgument(
                f"{path}: unknown key {key!r}{where}{nearest(key, known)}; 'suffolk config show{command}' lists all"
            )
        label = f"{path}: {key}{where}"
        yield key, Given(read_value(known[key], value, label), label, f"{path}{f' [{name}]' if name else ''}")
