"""Tests the results file of a long measurement, and the estimate of its remaining time."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.hybrid.run_log import RunLog
from suffolk.benchmarks.hybrid.time_left import TimeLeft
from suffolk.datastore.errors import Corruption, InvalidArgument


def test_a_log_continues_where_the_run_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    first = RunLog(path, {"a": (1, 2)})
    first.add({"part": "x", "value": 1})
    with path.open("a") as file:
        file.write('{"part": "y", "val')
    second = RunLog(path, {"a": [1, 2]})
    assert (second.rows, second.runs) == ([{"part": "x", "value": 1}], 2)
    assert second.has(part="x")
    assert not second.has(part="x", value=2)
    second.add({"part": "y"})
    assert RunLog(path, {"a": [1, 2]}).rows == [{"part": "x", "value": 1}, {"part": "y"}]
    with pytest.raises(InvalidArgument, match=r"other settings \(a\)"):
        RunLog(path, {"a": [1]})
    path.write_text("oops\n" + path.read_text())
    with pytest.raises(Corruption, match="not JSON"):
        RunLog(path, {"a": [1, 2]})


def test_time_left_is_the_mean_so_far_times_what_is_left() -> None:
    times = iter([0.0, 100.0, 400.0])
    left = TimeLeft("M", 6, lambda: next(times))
    assert left.done("a") == "M: 1 of 6, 8 min left: a"
    assert left.done("b") == "M: 2 of 6, 13 min left: b"
