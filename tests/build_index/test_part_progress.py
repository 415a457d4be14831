"""Tests the progress of measurements: rates, a quiet log, and a bar that only the work itself draws."""

from __future__ import annotations

import io
import itertools
import threading

import pytest

from suffolk.benchmarks.parts import keep
from suffolk.build_index import progress
from suffolk.build_index.progress import WorkProgress, part_progress, rate, segment_progress, show_part, tracked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("done", "seconds", "shown"),
    [(30, 10, "3 passes/s"), (1, 2.0, "30 passes/min"), (1, 1800, "2 passes/h"), (5e6, 2, "2,500,000 passes/s")],
)
def test_slow_work_has_a_rate_that_can_be_read(done: float, seconds: float, shown: str) -> None:
    assert rate(done, seconds, "passes") == shown


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = itertools.count(0, 10)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    for part in tracked(range(20), 20, "prompts"):
        show_part(f"part {part}")
    lines = capsys.readouterr().err.splitlines()
    assert 0 < len(lines) < 20
    assert all(line.startswith("prompts:") and "/min" in line and line.endswith("s left") for line in lines)


def test_a_terminal_gets_a_bar_and_no_thread_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that draws would take time from what is measured."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(progress, "DRAW_SECONDS", 0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    import sys

    terminal, threads = sys.stderr, threading.active_count()
    with part_progress(2, "prompts") as done:
        assert threading.active_count() == threads
        show_part("part 1: tokens/s 3")
        done(1)
    assert isinstance(terminal, Terminal)
    shown = terminal.getvalue()
    assert "50%" in shown
    assert "1 of 2, " in shown
    assert "part 1: tokens/s 3" in shown


def test_parts_before_an_interrupt_are_kept_without_a_second_bar(capsys: pytest.CaptureFixture[str]) -> None:
    def parts() -> itertools.chain[int]:
        yield from (1, 2)
        raise KeyboardInterrupt

    assert keep(parts(), 5, "parts") == ([1, 2], {"done": 2, "of": 5, "unit": "parts"})
    assert capsys.readouterr().err == ""


def test_segments_count_by_their_tokens() -> None:
    class Shares(WorkProgress):
        found: list[float] = []

        def advance(self, work: str, share: float, facts: str) -> None:
            self.found.append(share)
            assert facts.startswith("400 tokens, ")

    report = segment_progress(Shares(), "checking", {"a": 300, "b": 100})
    for name, share in (("a", 0.5), ("a", 1.0), ("b", 0.5), ("b", 1.0)):
        report(name, share)
    assert Shares.found == [0.375, 0.75, 0.875, 1.0]
