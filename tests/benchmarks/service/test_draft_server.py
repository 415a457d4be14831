"""Tests the draft service that runs during a measurement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suffolk.benchmarks.service.load import served
from suffolk.datastore.errors import Unavailable


def test_a_service_that_does_not_start_reports_the_reason(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="did not start: .*no-store"), served(tmp_path / "no-store"):
        pass


def test_a_process_that_prints_another_line_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "server"
    server.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho why not >&2\necho hello\nexec sleep 600\n")
    server.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(server))
    with pytest.raises(Unavailable, match="did not start: hello\nwhy not"), served(tmp_path / "store"):
        pass
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
