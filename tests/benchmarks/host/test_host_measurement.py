"""``suffolk bench host`` runs the real step loop along given texts, and divides the host's time."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.host.instant_model import HostClock, replaced_clock
from suffolk.benchmarks.host.measure import PARTS
from tests.support.forked import suffolk
from tests.support.measurements import bench, read_report, result_files

pytest.importorskip("matplotlib")


def test_steps_follow_the_texts_with_and_without_drafts(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    sizes = ("--requests", "2", "--tokens", "24", "--prompt", "64", "--rounds", "1")
    shown = bench("host", *sizes, "--temperature", "0.7", *result_files(path))
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
    assert "2, hybrid" in shown


def test_a_bound_is_named(tmp_path: Path) -> None:
    done = suffolk("bench", "host", "--tokens", "7", "--json", tmp_path / "x.json")
    assert done.returncode == 2
    assert "tokens is 7; it must be between 8 and 4096" in done.stderr


def test_given_times_take_the_place_of_work() -> None:
    clock = HostClock()
    with replaced_clock(clock.now):
        begin, worked = clock.now(), clock.worked()
        with clock.taking(5.0):
            sum(range(10_000))
        assert clock.now() - begin >= 5.0
        assert clock.worked() - worked < 5.0
