"""Trying a linear layer: rows to multiply, and how long that takes."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def some_rows(count: int, layer: torch.nn.Linear) -> torch.Tensor:
    """[count, inputs] of the layer's dtype, the same each time."""
    numbers = torch.sin(torch.arange(count * layer.in_features, dtype=torch.float32))
    return numbers.view(count, -1).to(layer.weight.dtype)


def seconds(product: Callable[..., torch.Tensor], *operands: torch.Tensor | None) -> float:
    """How long one call takes."""
    begin = time.perf_counter()
    product(*operands)
    return time.perf_counter() - begin
