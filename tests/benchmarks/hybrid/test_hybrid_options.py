"""Tests the settings of the hybrid measurement, and the order of its prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.hybrid.compared_drafters import HYBRID
from suffolk.benchmarks.hybrid.options import HybridOptions
from suffolk.benchmarks.hybrid.run import in_turn
from suffolk.benchmarks.prompts import Prompt
from suffolk.datastore.errors import InvalidArgument


def options(**changes: object) -> HybridOptions:
    return HybridOptions(DecodingOptions("m", (Path("p"),), drafters=()), Path("out"), **changes)  # type: ignore[arg-type]


def test_options_are_checked() -> None:
    assert options().names == ("prompt-lookup", HYBRID)
    assert options(useless=True).names == (HYBRID, "hybrid + useless network")
    for changes in (
        {"nodes": (0,)},
        {"nodes": (8, 8)},
        {"parts": ("x",)},
        {"temperatures": ()},
        {"unrelated": "u"},
        {"drafters": ("hindsight: eagle",)},
    ):
        with pytest.raises(InvalidArgument):
            options(**changes)


def test_settings_contain_everything_that_rows_depend_on() -> None:
    assert options().settings() == options(nodes=(4,), temperatures=(1.0,), parts=("nodes",)).settings()
    assert options().settings() != options(excluded=frozenset({"a"})).settings()
    assert options().settings() != options(drafters=("prompt-lookup",)).settings()


def test_groups_take_turns() -> None:
    prompts = [(Prompt(name, name[0], ()), [1]) for name in ("a1", "a2", "a3", "b1", "c1", "c2")]
    assert [prompt.name for prompt, _ in in_turn(prompts)] == ["a1", "b1", "c1", "a2", "c2", "a3"]
