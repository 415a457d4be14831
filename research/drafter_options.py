"""Adds the drafters' options to the parser of a study, from the registry."""

from __future__ import annotations

import argparse
from collections.abc import Container

from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.registry import BUILT_IN


def add_drafter_options(parser: argparse.ArgumentParser, without: Container[str] = ()) -> None:
    """Declare the options of all built-in drafters except ``without``, each option once."""
    entries = [entry for entry in BUILT_IN.values() if entry.name not in without]
    for option in {each.flag: each for entry in entries for each in entry.options}.values():
        if option.kind is bool:
            parser.add_argument(option.flag, action="store_true", help=option.help)
        elif option.repeated:
            parser.add_argument(
                option.flag, type=option.kind, action="append", default=[], metavar=option.metavar, help=option.help
            )
        else:
            parser.add_argument(option.flag, type=option.kind, metavar=option.metavar, help=option.help)


def read_drafter_config(args: argparse.Namespace) -> DrafterConfig:
    """Return the drafters that the options in ``args`` select. Raises as ``DrafterConfig``."""
    entries = [entry for entry in BUILT_IN.values() if entry.needs_option]
    names = {option.name for entry in entries for option in entry.options}
    return DrafterConfig(dtype=args.dtype, **{name: getattr(args, name) for name in names if hasattr(args, name)})
