"""Split or masked attention for every tree, whatever its size."""

from __future__ import annotations

import sys

import pytest

from suffolk.serving.engine.model import split_attention


def force(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packed passes split every tree's attention (``split``) or none (``masked``)."""
    monkeypatch.setattr(split_attention, "LEAST_PAIRS", 1 if attention == "split" else sys.maxsize)
