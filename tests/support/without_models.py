"""The command in a process where the packages of the extra ``worker`` cannot be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from suffolk.datastore.errors import WORKER
from tests.support.building import ROOT

BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({WORKER!r})); "


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` to its end."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False
    )


def suffolk(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    words = [str(each) for each in arguments]
    return python(f"from suffolk.cli.main import main; sys.exit(main({words!r}))")
