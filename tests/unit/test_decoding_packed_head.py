"""The packed output layer: the same logits, only where it applies, and never a reason to fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from serving.decoding import packed_head
from serving.decoding.packed_head import pack_head
from tests.tiny_models import tiny_model


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(packed_head, "_MIN_WEIGHTS", 0)
    return tiny_model().to(torch.float32)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("rows", [1, 2, 7, 64, 65])
def test_the_logits_are_the_same(model: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 2.0])  # the trial must not depend on this machine
    monkeypatch.setattr(packed_head, "_fastest", lambda call: next(times))
    head = model.get_output_embeddings()
    hidden = torch.randn(1, rows, 32)
    expected = head(hidden)
    assert pack_head(model)
    with torch.inference_mode():
        assert torch.allclose(head(hidden), expected, atol=1e-5)
    assert torch.allclose(head(hidden), expected, atol=0)  # outside decoding the layer is what it was


def test_fp64_small_heads_and_slower_products_stay_as_they_are(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not pack_head(model.double())
    model.float()
    times = iter([2.0, 1.0])
    monkeypatch.setattr(packed_head, "_fastest", lambda call: next(times))
    assert not pack_head(model)
    monkeypatch.setattr(packed_head, "_MIN_WEIGHTS", 10**9)
    assert not pack_head(model)
    assert "forward" not in vars(model.get_output_embeddings())


def test_a_torch_without_the_operator_is_no_fault(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_head, "_packed_product", lambda head: None)
    assert not pack_head(model)
