"""Commands with paths that are no UTF-8, in locales of UTF-8 and of ASCII."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

import suffolk
from suffolk.cli.main import main
from suffolk.datastore.errors import NotFound
from suffolk.datastore.files import name_text
from tests.support.building import read_documents, tokenizer_json
from tests.support.processes import SUFFOLK

ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
"""Variables that give an interpreter the file system encoding ASCII."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a corpus and a tokenizer, all with odd names. Paths of the tests are bytes of it."""
    odd = tmp_path / os.fsdecode(b"odd\xff")
    for name, content in ((b"a\xe9.txt", "hello world"), ("b é.jsonl".encode(), '{"text": "hello there"}')):
        (odd / "in").mkdir(parents=True, exist_ok=True)
        (odd / "in" / os.fsdecode(name)).write_text(content)
    with open(odd / "in" / os.fsdecode(b"c\xe9.parquet"), "wb") as file:
        parquet.write_table(pyarrow.table({"text": ["hello again"]}), file)
    (odd / "model").mkdir()
    (odd / "model/tokenizer.json").write_text(tokenizer_json())
    return odd


def commands(folder: Path) -> list[list[str | Path]]:
    store, copy = folder / os.fsdecode("stör\xff".encode("latin-1")), folder / os.fsdecode(b"copy\xff")
    return [
        ["build", "--tokenizer", folder / "model", "--output", store, "--skipped", folder / "skipped", folder / "in"],
        ["build", "--append", "--output", store, folder / "in"],
        ["info", store],
        ["verify", store],
        ["lookup", store, "hello", "--occurrences", "1"],
        ["compact", store],
        ["delete", store, "--id", folder / "in" / os.fsdecode(b"a\xe9.txt")],
        ["snapshot", store, copy],
        ["push", store, f"file://{folder.parent}/remote"],
        ["pull", f"file://{folder.parent}/remote", folder / os.fsdecode(b"pulled\xe9")],
    ]


def test_paths_that_are_no_utf8(folder: Path) -> None:
    for words in commands(folder):
        assert main(list(map(str, words))) == 0, words
    pulled = folder / os.fsdecode(b"pulled\xe9")
    place = f"{folder.parent}/odd\\xff/in"
    assert [source for source, _ in read_documents(pulled)] == [f"{place}/b é.jsonl:1", f"{place}/c\\xe9.parquet:1"] * 2
    with pytest.raises(NotFound, match="none is no datastore"):
        suffolk.open(folder / "none")
    segment = next((pulled / "segments").iterdir())
    segment.write_bytes(segment.read_bytes()[:100])
    assert main(["verify", str(pulled)]) == 1


@pytest.mark.parametrize(
    "words", ["info ODD", "build --output x ODD", "worker --model x --config ODD", "ODD", "info x --ODD"]
)
def test_messages_show_the_bytes_of_a_name(words: str) -> None:
    """Regression: they showed \\udcff, by which no shell finds the file."""
    command = [word.encode().replace(b"ODD", b"odd\xff") for word in words.split()]
    done = subprocess.run([*SUFFOLK, *command], capture_output=True, timeout=60)
    assert done.returncode == 2
    assert b"odd\\xff" in done.stderr


def test_the_ascii_locale(folder: Path) -> None:
    program = (
        "import json, sys\n"
        "from suffolk.cli.main import main\n"
        "assert sys.getfilesystemencoding() == 'ascii'\n"
        "sys.exit(any([main(words) for words in json.load(open(sys.argv[1]))]))"
    )
    (folder / "words.json").write_text(json.dumps([list(map(str, words)) for words in commands(folder)]))
    done = subprocess.run(
        [sys.executable, "-c", program, folder / "words.json"], env=os.environ | ASCII, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_names_are_stored_as_valid_text() -> None:
    assert name_text("plain") == "plain"
    assert name_text("é") == "é"
    assert name_text(os.fsdecode(b"a\xff")) == "a\\xff"
    assert name_text("\udcc3\udca9") == "é"  # as the ASCII locale decodes the bytes of é
    assert name_text("half \ud800") == "half ?"
