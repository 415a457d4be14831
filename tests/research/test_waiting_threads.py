"""The study of waiting threads times each number of rows in both ways, and refuses what it cannot time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from research.waiting_threads import main
from tests.support.tiny_models import save_tiny


def test_passes_are_timed_in_both_ways(tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "model")
    words = ["--model", str(model), "--busy", "0", "1", "--rows", "1", "4", "--rounds", "1"]
    assert main([*words, "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row[:2] for row in found] == [["0", "1"], ["0", "4"], ["1", "1"], ["1", "4"]]
    assert all(milliseconds > 0 for row in found for milliseconds in row[2:])


@pytest.mark.parametrize("words", [("--rows", "0"), ("--busy", "-1"), ("--rounds", "0")])
def test_values_out_of_range_are_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "nowhere", *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {words[0]}")
