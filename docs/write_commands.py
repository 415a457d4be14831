"""Writes the command reference, docs/reference/commands.md and a page for each command, from the commands' settings.

python docs/write_commands.py      # run it after each change of an option; a test compares
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import mdformat

from suffolk.cli.commands import COMMANDS, find_command
from suffolk.cli.config.show import default_text
from suffolk.cli.options.parser import example_lines
from suffolk.cli.options.setting import Setting, settings_of

REFERENCE = Path(__file__).parent / "reference"
STYLE = {"wrap": 100, "number": True, "plugin": {"tables": {"compact_tables": True}}}
NOTE = "*Written by `docs/write_commands.py` from the settings of `suffolk{}`.*"


def main() -> None:
    shutil.rmtree(REFERENCE / "commands", ignore_errors=True)
    for path, text in pages().items():
        (REFERENCE / path).parent.mkdir(exist_ok=True)
        (REFERENCE / path).write_text(text)


def pages() -> dict[str, str]:
    """Path below docs/reference -> content, formatted."""
    found = {"commands.md": index()} | {f"commands/{_file(name)}": page(name) for name in COMMANDS}
    return {path: mdformat.text(text, options=STYLE, extensions={"tables"}) for path, text in found.items()}


def index() -> str:
    rows = [f"| [`suffolk {name}`](commands/{_file(name)}) | {text} |" for name, text in COMMANDS.items()]
    return "\n".join(["# Commands", "", NOTE.format(""), "", "| command | what it does |", "|---|---|", *rows, ""])


def page(name: str) -> str:
    command = find_command(name)
    settings = list(settings_of(command.options).values())
    parts = [f"# suffolk {name}", NOTE.format(f" {name}"), *_paragraphs(command.help)]
    options = [each for each in settings if not each.rare]
    order = list(dict.fromkeys(each.group for each in options))
    for group, members in groupby(sorted(options, key=lambda each: order.index(each.group)), lambda each: each.group):
        parts += [f"## {(group or 'options').capitalize()}", _table("option", list(members))]
    if rare := [each for each in settings if each.rare]:
        parts += [
            "## Further settings",
            "Keys of the file of `--config`, and names for `--set NAME=VALUE`. Options are keys too: `--max-new-tokens` is "
            "`max_new_tokens`.",
            _table("key", rare),
        ]
    return "\n\n".join([*parts, *_paragraphs("\n".join(example_lines(command.examples)))]) + "\n"


def _table(title: str, settings: list[Setting]) -> str:
    rows = [f"| {_name(each)} | {_cell(each.domain)} | {_default(each)} | {_cell(each.help)} |" for each in settings]
    return "\n".join([f"| {title} | value | default | meaning |", "|---|---|---|---|", *rows])


def _name(setting: Setting) -> str:
    return f"`{setting.name if setting.rare else setting.label}`"


def _default(setting: Setting) -> str:
    text = default_text(setting)
    return f"`{text}`" if text not in ("", "required") else text


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _file(name: str) -> str:
    return f"{name.replace(' ', '-')}.md"


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as they are; neighbours with indented lines, as examples are, as one block."""
    for fenced, group in groupby(text.strip("\n").split("\n\n"), lambda each: "\n  " in f"\n{each}"):
        if fenced:
            yield "\n".join(["```text", "\n\n".join(group), "```"])
        else:
            yield from (each.replace("<", "\\<") for each in group)


if __name__ == "__main__":
    main()
