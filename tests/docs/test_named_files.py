"""Files that the documents name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"} - {ROOT / "docs" / "research-log.md"})
FOLDERS = (
    "benchmarks",
    "build_index",
    "capacity",
    "csrc",
    "datastore",
    "docs",
    "recipes",
    "research",
    "serving",
    "suffolk",
    "tests",
)
FILES = [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_source_file_exists(page: Path) -> None:
    named = set(
        re.findall(r"`(?!suffolk_copy/)([a-z_0-9/]+\.(?:py|h|cc|proto|sh))`", page.read_text())
    )  # not the example's
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in FILES)] == []
