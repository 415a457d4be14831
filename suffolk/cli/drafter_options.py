"""The drafters' own options, from the registry: declared, read, and turned into the drafters that a command runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from suffolk.cli.filled import filled, filled_path
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.drafters.drafter_config import DrafterConfig
from suffolk.serving.drafters.drafter_entry import DrafterEntry, DrafterOption
from suffolk.serving.drafters.registry import BUILT_IN, NONE, find, known, names

_KINDS: dict[type, Callable[[str], Any]] = {str: filled, Path: filled_path}
HYBRID = "hybrid"


def add_drafter_options(
    group: argparse._ActionsContainer, drafters: Iterable[str] = BUILT_IN, without: Container[str] = ()
) -> None:
    """Declare the options of ``drafters``, by default of all built-in ones, ``without`` those of some; each option once.

    Raises:
        Unsupported: a plugin's option is one of the command's.
    """
    entries = [find(name) for name in drafters if name not in without]
    options = {option.flag: (option, entry) for entry in entries for option in entry.options}
    for option, entry in options.values():
        try:
            _declare(group, option)
        except argparse.ArgumentError as error:
            raise Unsupported(
                f"drafter {entry.name} of package {entry.package}: option {option.flag} is one of the command's own ({error}); "
                f"the package must name it --{entry.name}-..."
            ) from error


def add_plugin_options(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Declare the options of the plugins that ``--drafter`` asks for in ``arguments``; nothing for a command without ``--drafter``.

    Raises as ``find`` and ``add_drafter_options``.
    """
    if "--drafter" not in parser._option_string_actions:
        return
    reader = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    reader.add_argument("--drafter", action="append", nargs="?", default=[])
    asked, _ = reader.parse_known_args(arguments)
    for entry in _plugins(asked.drafter):
        if entry.options:
            add_drafter_options(parser.add_argument_group(f"drafter {entry.name} ({entry.package})"), [entry.name])


def read_drafter_config(args: argparse.Namespace) -> DrafterConfig:
    """The drafters that the command line names, by their options or, if they are plugins, by ``--drafter``.

    Raises as ``DrafterConfig`` and ``find``."""
    asked = getattr(args, "drafter", None) or []
    plugins = [entry.name for entry in _plugins([asked] if isinstance(asked, str) else asked)]
    entries = [entry for entry in known() if entry.needs_option or entry.name in plugins]
    options = {option.name for entry in entries for option in entry.options}
    given = {name: getattr(args, name) for name in options if hasattr(args, name)}
    return DrafterConfig(*plugins, dtype=args.dtype, **given)


def chosen_drafters(args: argparse.Namespace, choices: Sequence[str]) -> list[str]:
    """The drafters of ``--drafter``, each once; without it all of ``choices`` that can draft from what is named.

    Raises:
        InvalidArgument: what a drafter needs is not named. Others as ``read_drafter_config`` and ``DrafterConfig.parts``.
    """
    loaded = list(read_drafter_config(args).parts())
    able = {NONE, *loaded, *(entry.name for entry in BUILT_IN.values() if not entry.options and entry.name != HYBRID)}
    able |= {"datastore"} if args.datastore else set()
    able |= {HYBRID} if args.datastore or loaded else set()
    for name in args.drafter or []:
        if name not in able:
            needed = find("datastore" if name == HYBRID else name).usage
            raise InvalidArgument(f"--drafter {name} needs something to draft from; add {needed}")
    return list(dict.fromkeys(args.drafter or [name for name in choices if name in able]))


def _plugins(asked: Iterable[str | None]) -> list[DrafterEntry]:
    """The entries of the plugins among the drafters that are ``asked`` for. Raises as ``find``."""
    installed = set(names()) - BUILT_IN.keys()
    return [find(name) for name in dict.fromkeys(asked) if name in installed]


def _declare(group: argparse._ActionsContainer, option: DrafterOption) -> None:
    if option.kind is bool:
        group.add_argument(option.flag, action="store_true", help=option.help)
    elif option.repeated:
        kind = _KINDS.get(option.kind, option.kind)
        group.add_argument(
            option.flag, type=kind, action="append", default=[], metavar=option.metavar, help=option.help
        )
    else:
        kind = _KINDS.get(option.kind, option.kind)
        group.add_argument(option.flag, type=kind, metavar=option.metavar, help=option.help)
