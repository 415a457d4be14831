"""Errors of the library in the words of a command line: a field that an option sets is called as the option is."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator


def name_options(message: str, parser: argparse.ArgumentParser) -> str:
    """``message`` with fields called by their options: ``held_out is 2`` becomes ``--held-out is 2``.

    A name of one word may be a plain word of the message, and counts as a field only where the message begins with it.
    """
    flags = dict(_flags(parser))
    joined = [re.escape(name) for name in flags if "_" in name]
    plain = [re.escape(name) for name in flags if "_" not in name]
    patterns = [rf"(?<![\w./='\"-])({'|'.join(joined)})(?![\w./='\"-])"] if joined else []
    patterns += [rf"\A({'|'.join(plain)})(?= is |: )"] if plain else []
    for pattern in patterns:
        message = re.sub(pattern, lambda found: flags[found[0]], message)
    return message


def _flags(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The field that each option sets, and the option, those of subcommands included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _flags(each)
        elif action.option_strings:
            yield action.dest, action.option_strings[-1]
