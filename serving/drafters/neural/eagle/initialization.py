"""First weights of an EAGLE head: what a linear layer alone can tell of the next hidden state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from suffolk.serving.drafters.training.head import Batch
from suffolk.serving.drafters.training.least_squares import LeastSquares

if TYPE_CHECKING:
    from suffolk.serving.drafters.neural.eagle.model import EagleHead


@torch.no_grad()
def start_linear(head: EagleHead, batches: Iterator[Batch]) -> None:
    """Set ``fc`` of a head of version 1 to the least squares over counted tokens, and let its layer add nothing at first."""
    squares = LeastSquares()
    for batch in batches:
        known = batch.counted[:, 2:]
        features = head.fuse(batch.features)
        pairs = torch.cat([head.embed(batch.tokens[:, 1:-1]).to(features.dtype), features[:, :-2]], -1)[known]
        ones = pairs.new_ones(len(pairs), 0 if head.fc.bias is None else 1)
        squares.add(torch.cat([pairs, ones], -1), features[:, 1:-1][known])
        if squares.enough:
            break
    found = squares.solve().to(head.fc.weight.dtype)
    width = head.fc.in_features
    head.fc.weight.copy_(found[:, :width])
    if head.fc.bias is not None:
        head.fc.bias.copy_(found[:, width])
    head.layer.self_attn.o_proj.weight.zero_()
    head.layer.mlp.down_proj.weight.zero_()
