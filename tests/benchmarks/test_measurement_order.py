"""The order of methods and prompts in a measurement."""

from __future__ import annotations

from suffolk.benchmarks.turns import alternating, rotated


def test_each_turn_begins_with_the_next_item() -> None:
    assert [rotated("abc", turn) for turn in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_groups_alternate() -> None:
    names = ["a1", "a2", "a3", "b1", "c1", "c2"]
    assert alternating(names, lambda name: name[0]) == ["a1", "b1", "c1", "a2", "c2", "a3"]
