"""docs/DECODING.md runs: its blocks in order, on a tiny model, against a worker of that model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from suffolk.serving.engine.model.target import Target
from tests.support.tiny_models import save_tiny
from tests.support.worker_server import working

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "DECODING.md"
WORKER = "grpc://127.0.0.1:7710"


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    save_tiny(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert WORKER in blocks[-1]
    names: dict[str, Any] = {}
    with working(Target.load("model/")) as server:
        for block in blocks:
            exec(compile(block.replace(WORKER, f"grpc://{server.listening[0]}"), str(GUIDE), "exec"), names)  # noqa: S102
    printed = capsys.readouterr().out
    assert printed.count("length") == 2  # the first generation, and the worker's
