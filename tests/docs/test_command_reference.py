"""The command reference is what docs/write_commands.py makes of the parsers."""

from __future__ import annotations

import runpy
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_reference_is_up_to_date() -> None:
    pages = runpy.run_path(str(REFERENCE.parent / "write_commands.py"))["pages"]()
    written = [REFERENCE / "commands.md", *(REFERENCE / "commands").glob("*.md")]
    assert {str(path.relative_to(REFERENCE)): path.read_text() for path in written} == pages, (
        "run: python docs/write_commands.py"
    )
