"""Forces split or masked attention for trees of any size."""

from __future__ import annotations

import sys

import pytest

from suffolk.serving.decoding.engine.model import tree_attention


def force(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make packed passes split the attention of every tree (``split``) or of none (``masked``)."""
    monkeypatch.setattr(tree_attention, "LEAST_PAIRS", 1 if attention == "split" else sys.maxsize)
