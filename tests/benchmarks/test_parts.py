"""The order of methods and prompts in a measurement."""

from __future__ import annotations

from functools import partial

import pytest

from suffolk.benchmarks.parts import rotated, time_rounds
from suffolk.benchmarks.report import quantiles_us


def test_each_turn_begins_with_the_next_item() -> None:
    assert [rotated("abc", turn) for turn in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


@pytest.mark.parametrize("timing", [time_rounds, partial(time_rounds, alternating=True)])
def test_every_call_gets_every_query_in_every_round(timing: object) -> None:
    asked: list[tuple[str, int]] = []
    calls = {name: lambda question, name=name: asked.append((name, question)) for name in ("a", "b")}
    seconds = timing(calls, list(range(10)), 3, 0)  # type: ignore[operator]
    assert {name: len(times) for name, times in seconds.items()} == {"a": 30, "b": 30}
    assert sorted(asked) == sorted([(name, question) for name in "ab" for question in range(10)] * 4)
    assert asked != sorted(asked)


def test_rounds_keep_calls_together_and_alternation_does_not() -> None:
    names: list[str] = []
    calls = {name: lambda question, name=name: names.append(name) for name in ("a", "b")}
    time_rounds(calls, list(range(3)), 1, 0)
    assert "".join(names) == "aaabbb" + "bbbaaa"
    names.clear()
    time_rounds(calls, list(range(3)), 0, 0, alternating=True)
    assert "".join(names) == "abbaab"


def test_quantiles_are_in_microseconds() -> None:
    found = quantiles_us([0.001] * 98 + [0.002, 0.003])
    assert found["p50_us"] == pytest.approx(1000)
    assert found["p99_us"] > 1900
    assert found["mean_us"] == pytest.approx(1030)
    assert found["calls"] == 100
    assert quantiles_us([]) == {"calls": 0}
