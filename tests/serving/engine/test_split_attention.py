"""Attention in two parts against attention in one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from suffolk.serving.engine.model import split_attention as module
from suffolk.serving.engine.model.kv_cache import LayerShape
from suffolk.serving.engine.model.split_attention import TRIED_CONTEXTS, attention_ways, measure_split, split_attention
from suffolk.serving.engine.model.tree_attention import Span
from suffolk.serving.engine.model.tree_layout import lay_out
from tests.support.drafters import random_tree

CPU = torch.device("cpu")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("value_width", [16, 24])  # torch's kernel wants equal widths
@pytest.mark.parametrize("cached", [1, 70])
def test_two_parts_give_what_one_gives(dtype: torch.dtype, value_width: int, cached: int) -> None:
    numbers = torch.Generator().manual_seed(0)
    span = Span(lay_out(3, random_tree(np.random.default_rng(1), 12, 50)), 0, 0, cached)
    rows = torch.randn(1, 2, 39, 16, generator=numbers, dtype=torch.float64)
    keys = torch.randn(1, 2, cached + 13, 16, generator=numbers, dtype=torch.float64) * 3
    values = torch.randn(1, 2, cached + 13, value_width, generator=numbers, dtype=torch.float64)
    _, mask = span.mask(None, 3, torch.float64, CPU)
    expected = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=0.3)
    own = span.own_mask(3, dtype, CPU)
    found = split_attention(rows.to(dtype), keys.to(dtype), values.to(dtype), own, cached, 0.3)
    assert found.dtype == dtype
    limit = TOLERANCE[dtype] * (
        4 if dtype.itemsize == 2 else 1
    )  # scores of some ten, rounded before they are exponents
    assert (found.double() - expected).abs().max() < limit


def test_where_a_window_hides_cached_tokens_nothing_is_split() -> None:
    layout = lay_out(3, random_tree(np.random.default_rng(1), 12, 50))
    deepest = int(layout.depths.max())
    span = Span(layout, 0, 0, 20, split=True)
    assert [span.splits(window) for window in (None, 20 + deepest, 21 + deepest)] == [True, False, True]
    assert not Span(layout, 0, 0, 0, split=True).splits(None)


def test_the_split_is_taken_only_where_it_is_clearly_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision, with given seconds: masked within 5 %; then split at the longer context alone."""
    shape = LayerShape(2, 16, 16, None)
    for shares, expected in (
        ((0.96, 0.96), float("inf")),
        ((0.96, 0.9), TRIED_CONTEXTS[1]),
        ((0.5,), TRIED_CONTEXTS[0]),
    ):
        seconds = iter({"masked": [1.0], "split": [share]} for share in shares)
        monkeypatch.setattr(module, "time_in_turn", lambda ways, rounds, device, seconds=seconds: next(seconds))
        assert measure_split(4, shape, torch.float32, CPU) == expected
    assert measure_split(4, shape, torch.float32, CPU, longest=512) == float("inf")


def test_the_measured_ways_do_the_same_work() -> None:
    ways = attention_ways(100, 8, 9, LayerShape(3, 32, 32, None), torch.float64, CPU)
    assert (ways["masked"]() - ways["split"]()).abs().max() < 1e-12
