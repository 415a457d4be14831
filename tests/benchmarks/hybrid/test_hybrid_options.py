"""Tests the settings of the hybrid measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.hybrid.compared_drafters import HYBRID
from suffolk.benchmarks.hybrid.options import HybridOptions
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
