"""The study of the host's time runs the real step loop along given texts, and divides the host's time."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.host_time.__main__ import main
from research.host_time.instant_model import HostClock, replaced_clock
from research.host_time.measure import PARTS
from tests.support.measurements import read_report, result_files

pytest.importorskip("matplotlib")


def test_steps_follow_the_texts_with_and_without_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "host.json"
    sizes = ("--requests", "2", "--tokens", "24", "--prompt", "64", "--rounds", "1")
    assert main([*sizes, "--temperature", "0.7", *map(str, result_files(path))]) == 0
    cases = {(each["drafter"], each["requests"]): each for each in read_report(path)["results"]["cases"]}
    assert list(cases) == [("plain", 2), ("hybrid", 2)]
    for (drafter, _), case in cases.items():
        assert case["ms"] > 0
        assert list(case["parts_ms"]) == list(PARTS)
        if drafter == "plain":
            assert (case["tokens_per_step"], case["steps"]) == (1.0, 23)
            assert case["parts_ms"]["learning"] == 0
        else:
            assert case["parts_ms"]["drafting"] > 0
    assert "2, hybrid" in capsys.readouterr().out


def test_a_bound_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tokens", "7", "--json", str(tmp_path / "x.json")]) == 2
    assert "tokens is 7; it must be between 8 and 4096" in capsys.readouterr().err


def test_given_times_take_the_place_of_work() -> None:
    clock = HostClock()
    with replaced_clock(clock.now):
        begin, worked = clock.now(), clock.worked()
        with clock.taking(5.0):
            sum(range(10_000))
        assert clock.now() - begin >= 5.0
        assert clock.worked() - worked < 5.0
