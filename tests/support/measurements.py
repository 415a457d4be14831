"""``suffolk bench`` as a process, and the reports that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.building import suffolk


def bench(*arguments: str | Path) -> str:
    done = suffolk("bench", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_report(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    assert {"benchmark", "command", "commit", "versions", "machine", "seed", "settings", "results"} <= set(found)
    assert found["machine"]["cpu"]
    assert found["versions"]["suffolk"]
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    return found
