"""Split attention equals attention in one part."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from suffolk.serving.decoding.engine.model.tree_attention import LEAST_PAIRS, Span, split_attention
from suffolk.serving.decoding.engine.model.tree_layout import lay_out
from tests.support.drafters import random_tree

CPU = torch.device("cpu")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cached", [1, 70])
def test_two_parts_give_what_one_gives(dtype: torch.dtype, cached: int) -> None:
    numbers = torch.Generator().manual_seed(0)
    span = Span(lay_out(3, random_tree(np.random.default_rng(1), 12, 50)), 0, 0, cached)
    rows = torch.randn(1, 2, 39, 16, generator=numbers, dtype=torch.float64)
    keys = torch.randn(1, 2, cached + 13, 16, generator=numbers, dtype=torch.float64) * 3
    values = torch.randn(1, 2, cached + 13, 16, generator=numbers, dtype=torch.float64)
    _, mask = span.mask(None, 3, torch.float64, CPU)
    expected = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=0.3)
    own = span.own_mask(3, dtype, CPU)
    found = split_attention(rows.to(dtype), keys.to(dtype), values.to(dtype), own, cached, 0.3)
    assert found.dtype == dtype
    limit = TOLERANCE[dtype] * (4 if dtype.itemsize == 2 else 1)  # scores near ten, rounded before the exponential
    assert (found.double() - expected).abs().max() < limit


def test_large_trees_behind_long_contexts_are_split_where_no_window_hides_a_token() -> None:
    layout = lay_out(3, random_tree(np.random.default_rng(1), 12, 50))
    deepest, cached = int(layout.depths.max()), LEAST_PAIRS // 13 + 1
    span = Span(layout, 0, 0, cached)
    assert [span.splits(window) for window in (None, cached + deepest, cached + 1 + deepest)] == [True, False, True]
    assert not Span(layout, 0, 0, cached - 1).splits(None)
