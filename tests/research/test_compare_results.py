"""Results before and after a change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research.compare_results import changes, main

OLD = {
    "drafters": [
        {"drafter": "hybrid", "speed": 2.0, "speed_interval": [1.8, 2.2], "ms": 10.0},
        {"drafter": "none", "speed": 1.0, "speed_interval": [0.9, 1.1], "ms": 5.0},
    ],
    "latency_us": [10.0, 11.0, 12.0, 13.0, 14.0],
    "runs": [{"seconds": 1.0}],
    "count": 0,
}


def changed(**new: Any) -> list[str]:
    return [place for place, _, _ in changes(OLD, OLD | new, 0.03)]


def test_equal_results_have_no_changes() -> None:
    assert changed() == []


def test_intervals_and_samples_must_not_overlap() -> None:
    hybrid, plain = OLD["drafters"]  # type: ignore[misc]
    within, beyond = hybrid | {"speed": 2.15, "speed_interval": [2.0, 2.3]}, hybrid | {"speed": 2.6}  # type: ignore[operator]
    assert changed(drafters=[within, plain]) == []
    assert changed(drafters=[plain, beyond | {"speed_interval": [2.5, 2.7]}]) == ["drafters hybrid speed"]
    assert changed(latency_us=[12.0, 13.0, 14.0, 14.5, 15.0]) == []
    assert changed(latency_us=[20.0, 21.0, 22.0, 23.0]) == ["latency_us"]


def test_other_numbers_change_by_a_share_and_single_runs_are_left_out() -> None:
    hybrid, plain = OLD["drafters"]  # type: ignore[misc]
    assert changed(drafters=[hybrid | {"ms": 10.2}, plain], runs=[{"seconds": 9.0}]) == []  # type: ignore[operator]
    found = changed(drafters=[hybrid | {"ms": 8.0}, plain | {"ms": 10.0}], count=2)  # type: ignore[operator]
    assert found == ["count", "drafters none ms", "drafters hybrid ms"]


def test_the_command_tells_what_else_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, cpu, speed in zip(paths, ("EPYC", "Xeon"), (1.0, 2.0), strict=True):
        head = {
            "benchmark": "x",
            "commit": "a" * 40,
            "machine": {"cpu": cpu},
            "versions": {},
            "settings": {"rounds": 3},
        }
        path.write_text(json.dumps(head | {"results": {"speed": speed, "same": 1}}))
    assert main(list(map(str, paths))) == 0
    lines = ["machine.cpu: EPYC -> Xeon", "   2.000  1 -> 2  speed"]
    assert capsys.readouterr().out.splitlines() == [
        *lines,
        "1 of 2 values changed beyond noise: aaaaaaaa -> aaaaaaaa",
    ]
    paths[1].write_text("{}")
    assert main(list(map(str, paths))) == 2
    assert "new.json: no result of 'suffolk bench ... --json FILE'" in capsys.readouterr().err
