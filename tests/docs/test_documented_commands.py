"""Commands in the documents use commands and options that exist, with values that these take."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from suffolk.cli.commands import COMMANDS, find_command, split_command
from suffolk.cli.options.parser import example_lines, make_parser
from suffolk.cli.options.reading import read_options
from suffolk.cli.options.setting import settings_of
from suffolk.datastore.errors import NotFound
from suffolk.datastore.settings import check_fields

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {
    ROOT / "docs" / "research-log.md",  # history
    ROOT / "docs" / "how-to" / "write-a-drafter.md",  # has an option of a plugin; its own test runs it
}
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "benchmarks" / "README.md"} - LEFT_OUT)


def commands(page: Path) -> list[str]:
    """Return the lines of a page that call ``suffolk``, without the word ``suffolk``."""
    return re.findall(r"^(?:\$ )?suffolk (.+)$", page.read_text(), re.MULTILINE)


def test_the_command_for_tables_reads_what_spreadsheets_write(tmp_path: Path) -> None:
    """A byte order mark, line ends inside a field, and a field above the 128 KiB that Python's csv allows by default."""
    long = "word " * 30_000
    (tmp_path / "answers.csv").write_bytes(f'\ufeffanswer,id\r\n"a ""b"",\r\nc",1\r\n"{long}",2\r\n'.encode())
    page = (ROOT / "docs" / "how-to" / "choose-a-corpus.md").read_text()
    (command,) = re.findall(r"^python (-c 'import csv.*?\.jsonl)$", page, re.MULTILINE | re.DOTALL)
    subprocess.run(["sh", "-c", f"{shlex.quote(sys.executable)} {command}"], cwd=tmp_path, check=True)
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert rows == [{"answer": 'a "b",\r\nc', "id": "1"}, {"answer": long, "id": "2"}]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_documented_commands_are_understood(page: Path) -> None:
    for line in commands(page):
        check(re.split(r" {2,}", line)[0])


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_help_run_as_they_are_pasted(command: str) -> None:
    """A remark is a comment of the shell, so the whole line is a command."""
    for line in example_lines(find_command(command).examples):
        if found := re.match(r"  (?:\w+=\S+ )*suffolk (.+)$", line):
            check(found[1])


def check(line: str) -> None:
    """Read a command without the word ``suffolk``, up to a redirection. Raises InvalidArgument, or ValueError for a quote."""
    words = shlex.split(re.split(r" [<>] [\w.]+(?=$| +#)| \| ", line)[0], comments=True)
    if words[-1] == "--help" or words[:2] == ["config", "show"]:  # the latter takes another command's options
        return
    name, rest = split_command(words)
    options = find_command(name).options
    settings = settings_of(options)
    given = [word for word in rest if word != "..."]
    with suppress(NotFound):  # the file of --config
        check_fields(read_options(options, make_parser(f"suffolk {name}", "", "", settings), settings, name, given))
