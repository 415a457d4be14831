"""Without Ray, a build on Ray says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.building import ROOT

COMMAND = "import sys; sys.modules['ray'] = None; from suffolk.cli.main import main; sys.exit(main())"


def test_a_missing_ray_is_one_line(tmp_path: Path) -> None:
    words = ["build", "--ray", "local", "--vocab-size", "9", "--output", str(tmp_path / "store"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "suffolk: Ray is not installed, and --ray needs it; pip install 'suffolk[ray]'\n"
