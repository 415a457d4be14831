"""The command reference is the output of docs/write_commands.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['pages']()))"


def test_the_reference_is_up_to_date() -> None:
    """The reference is written in a process of its own, because other tests register heads and plugins, which add options."""
    script = str(REFERENCE.parent / "write_commands.py")
    done = subprocess.run([sys.executable, "-c", PAGES, script], capture_output=True, text=True, check=True)
    written = [REFERENCE / "commands.md", *(REFERENCE / "commands").glob("*.md")]
    assert {str(path.relative_to(REFERENCE)): path.read_text() for path in written} == json.loads(done.stdout), (
        "run: python docs/write_commands.py"
    )
