"""Times a linear layer on artificial rows."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def some_rows(count: int, layer: torch.nn.Linear) -> torch.Tensor:
    """Deterministic input rows [count, inputs] in the layer's dtype."""
    numbers = torch.sin(torch.arange(count * layer.in_features, dtype=torch.float32))
    return numbers.view(count, -1).to(layer.weight.dtype)


def seconds(product: Callable[..., torch.Tensor], *operands: torch.Tensor | None) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    product(*operands)
    return time.perf_counter() - begin
