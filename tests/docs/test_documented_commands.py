"""Commands in the documents use commands and options that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from suffolk.cli.commands import command_module, split_command
from suffolk.cli.options.parser import make_parser, parse_words
from suffolk.cli.options.setting import settings_of

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {
    ROOT / "docs" / "research-log.md",  # history
    ROOT / "docs" / "how-to" / "write-a-drafter.md",  # has an option of a plugin; its own test runs it
}
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "benchmarks" / "README.md"} - LEFT_OUT)


def commands(page: Path) -> list[str]:
    """Return the lines of a page that call ``suffolk``, without the word ``suffolk``."""
    return re.findall(r"^(?:\$ )?suffolk (.+)$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_documented_commands_are_understood(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(re.split(r" {2,}| [<>] [\w.]+$| \| ", line)[0], comments=True)
        if words[-1] == "--help" or words[:2] == ["config", "show"]:  # the latter takes another command's options
            continue
        name, rest = split_command(words)
        settings = settings_of(command_module(name).Options)
        parse_words(
            make_parser(f"suffolk {name}", "", "", settings), settings, [word for word in rest if word != "..."]
        )
