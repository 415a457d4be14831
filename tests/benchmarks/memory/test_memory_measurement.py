"""``suffolk bench memory`` on tiny data writes a correct report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.forked import suffolk
from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")


def test_memory_gives_equal_answers_under_every_limit(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    shown = bench(
        "memory", folder / "store", "--limits", "1", "0.5", "--queries", "40", "--rounds", "2", *result_files(path)
    )
    results = read_report(path)["results"]
    ways = [(run["limit"], run["residency"]) for run in results["runs"]]
    assert ways == [(1.0, "mmap"), (1.0, "warm"), (0.5, "mmap"), (0.5, "warm")]
    assert len({run["digest"] for run in results["runs"]} | {run["digest_again"] for run in results["runs"]}) == 1
    for run in results["runs"]:
        assert (run["cold"]["calls"], run["steady"]["calls"]) == (40, 80)
        assert run["open_s"] > 0
        assert 0 < run["cold"]["lookup"]["p50_us"] < run["cold"]["p50_us"]
    assert results["runs"][1]["resident_bytes"] == results["datastore"]["bytes"]
    assert "equal answers in all 4 processes" in shown


def test_limits_must_be_shares(folder: Path, tmp_path: Path) -> None:
    done = suffolk("bench", "memory", folder / "store", "--limits", "0", "--json", tmp_path / "x.json")
    assert done.returncode == 2
    assert "--limits is 0.0; it must be above 0 and at most 1" in done.stderr
