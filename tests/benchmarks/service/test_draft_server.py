"""Tests the draft service that runs during a measurement."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

import pytest

from suffolk.benchmarks.service.load import served, serving
from suffolk.datastore.errors import Unavailable
from tests.support.stores import make_store


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


def test_sigterm_leaves_no_server(tmp_path: Path) -> None:
    """Regression: a demo that was ended by SIGTERM left its draft service running."""
    make_store(tmp_path / "store", [[[1, 2, 3]]], vocab_size=9).close()
    before = signal.getsignal(signal.SIGTERM)
    numbers = []
    with contextlib.suppress(KeyboardInterrupt), serving(tmp_path / "store") as (_, number):
        numbers.append(number)
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("SIGTERM did not interrupt")
    assert [Path(f"/proc/{each}").exists() for each in numbers] == [False]
    assert signal.getsignal(signal.SIGTERM) == before
