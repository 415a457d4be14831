"""Tests the results file of a long measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.hybrid.run_log import RunLog
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
