"""The extras that messages and pages name exist, and the page that lists them is complete."""

from __future__ import annotations

import re
from pathlib import Path

from suffolk.datastore.settings import parse_toml

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = set(parse_toml((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
NOT_LISTED = {"dev", "docs"}  # for work on Suffolk itself
FOLDERS = ("datastore", "build_index", "serving", "capacity", "benchmarks", "suffolk/cli", "docs", "hub", "deploy")


def texts() -> dict[str, str]:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md")]
    return {str(path.relative_to(ROOT)): path.read_text() for path in [*files, ROOT / "README.md"]}


def test_named_extras_exist() -> None:
    named = {
        (name, file)
        for file, text in texts().items()
        for names in re.findall(r"(?:suffolk|\.)\[([a-z,]+)\]['\"]", text)
        for name in names.split(",")
    }
    assert {name for name, _ in named} >= {"worker", "parquet", "otel", "openai", "lora", "bench"}
    assert [each for each in sorted(named) if each[0] not in EXTRAS] == []


def test_the_page_lists_all_extras() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == EXTRAS - NOT_LISTED
