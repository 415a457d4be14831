"""Fixtures of the adapters' tests."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.support.vllm_stand_ins import stand_in_vllm


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stand-ins for the modules of vLLM."""
    return stand_in_vllm(monkeypatch)
