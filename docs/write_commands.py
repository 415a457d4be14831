"""Writes the command reference, docs/reference/commands.md and a page for each command, from the parsers.

python docs/write_commands.py      # run it after each change of an option; a test compares
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

import mdformat

from suffolk.cli.main import COMMANDS, build_parser

REFERENCE = Path(__file__).parent / "reference"
STYLE = {"wrap": 100, "number": True, "plugin": {"tables": {"compact_tables": True}}}
NOTE = "*Written by `docs/write_commands.py` from `suffolk {} --help`.*"


def main() -> None:
    shutil.rmtree(REFERENCE / "commands", ignore_errors=True)
    for path, text in pages().items():
        (REFERENCE / path).parent.mkdir(exist_ok=True)
        (REFERENCE / path).write_text(text)


def pages() -> dict[str, str]:
    """Path below docs/reference -> content, formatted."""
    found = {"commands.md": index()}
    for name in COMMANDS:
        found |= command_pages(name, _subparsers(build_parser([name]))[name])
    return {path: mdformat.text(text, options=STYLE, extensions={"tables"}) for path, text in found.items()}


def index() -> str:
    rows = [f"| [`suffolk {name}`](commands/{name}.md) | {text} |" for name, text in COMMANDS.items()]
    return "\n".join(["# Commands", "", NOTE.format(""), "", "| command | what it does |", "|---|---|", *rows, ""])


def command_pages(name: str, parser: argparse.ArgumentParser) -> dict[str, str]:
    """The page of a command, and those of its subcommands."""
    found = {f"commands/{name.replace(' ', '-')}.md": page(name, parser)}
    for below, each in _subparsers(parser).items():
        found |= command_pages(f"{name} {below}", each)
    return found


def page(name: str, parser: argparse.ArgumentParser) -> str:
    parts = [f"# suffolk {name}", NOTE.format(name), _prose(parser.description)]
    if below := _subparsers(parser):
        rows = [f"| [`{each}`]({name.replace(' ', '-')}-{each}.md) | {_first_line(below[each])} |" for each in below]
        parts.append("\n".join(["| subcommand | what it does |", "|---|---|", *rows]))
    for group in parser._action_groups:
        actions = [each for each in group._group_actions if not _hidden(each)]
        if actions:
            rows = [f"| {_names(parser, each)} | {_help(parser, each)} |" for each in actions]
            title = f"## {(group.title or 'options').capitalize()}"
            parts += [title, _prose(group.description), "\n".join(["| option | meaning |", "|---|---|", *rows])]
    parts.append(_prose(parser.epilog))
    return "\n\n".join(part for part in parts if part) + "\n"


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _hidden(action: argparse.Action) -> bool:
    special = argparse._HelpAction | argparse._SubParsersAction
    return isinstance(action, special) or action.help == argparse.SUPPRESS


def _names(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    if not action.option_strings:
        return f"`{formatter._format_args(action, formatter._get_default_metavar_for_positional(action))}`"
    value = "" if action.nargs == 0 else f" {_value(action, formatter)}"
    return ", ".join(f"`{each}{value}`" for each in action.option_strings)


def _value(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    if action.choices is not None and action.metavar is None:
        return action.dest.upper()
    return formatter._format_args(action, formatter._get_default_metavar_for_optional(action))


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    if action.choices is not None and action.metavar is None:
        text += f"; one of {', '.join(map(str, action.choices))}"
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _prose(text: str | None) -> str:
    """Paragraphs as they are; a paragraph with indented lines, as examples are, as a block."""
    return "\n\n".join(_paragraphs(text or ""))


def _paragraphs(text: str) -> Iterator[str]:
    block: list[str] = []
    for each in text.strip("\n").split("\n\n"):
        if any(line.startswith("  ") for line in each.splitlines()):
            block.append(each)
            continue
        if block:
            yield _fenced(block)
            block = []
        yield each.replace("<", "\\<")
    if block:
        yield _fenced(block)


def _fenced(block: list[str]) -> str:
    return "\n".join(["```text", "\n\n".join(block), "```"])


def _first_line(parser: argparse.ArgumentParser) -> str:
    return (parser.description or "").strip().splitlines()[0]


if __name__ == "__main__":
    main()
