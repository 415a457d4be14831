"""How deep an EAGLE head's drafts would be accepted, on text with the target's hidden states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from suffolk.serving.drafters.training.head import Batch

if TYPE_CHECKING:
    from suffolk.serving.drafters.neural.eagle.model import EagleHead

DEPTHS = 5
_CHUNK = 512
"""Rows whose logits are made at once."""


@torch.no_grad()
def acceptance(head: EagleHead, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """``HeadLoss.hits`` and ``seen``: greedy chains behind the pairs where drafts are begun, each fed with its own states, all at
    once."""
    tokens, size = batch.tokens, batch.tokens.shape[1]
    hits, seen = (torch.zeros(DEPTHS, dtype=torch.float64, device=tokens.device) for _ in range(2))
    chains = max(0, size - 1)
    hidden = head.fuse(batch.features)[:, :chains]
    starts = torch.arange(chains, device=tokens.device)
    alive = batch.starts[:, :chains]
    attend = _OwnChains()
    for depth in range(1, min(DEPTHS, size - 2) + 1):
        read = tokens[:, (starts + depth).clamp(max=size - 1)]
        hidden = head.step(read, hidden, starts + depth - 1, attend)
        tried = (starts + depth + 1).clamp(max=size - 1)
        alive = alive & (starts + depth + 1 < size)
        right = torch.zeros_like(alive)
        right[alive] = _guesses(head, hidden[alive]) == tokens[:, tried][alive]
        counted = alive & batch.counted[:, tried]
        seen[depth - 1] = counted.sum()
        hits[depth - 1] = (counted & right).sum()
        alive = right
    return hits, seen


class _OwnChains:
    """The first pass is causal; each later one has a row per chain, which sees what its chain's first row saw, and its chain's own
    rows."""

    def __init__(self) -> None:
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self._keys.append(key)
        self._values.append(value)
        rows = query.shape[2]
        own = torch.eye(rows, dtype=torch.bool, device=query.device)
        visible = torch.cat([own.new_ones(rows, rows).tril(), *[own] * (len(self._keys) - 1)], 1)
        keys, values = torch.cat(self._keys, 2), torch.cat(self._values, 2)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=visible, enable_gqa=True)


def _guesses(head: EagleHead, states: torch.Tensor) -> torch.Tensor:
    """int64[k], the likeliest token of each of ``states`` [k, hidden]."""
    return torch.cat([head.logits(part).argmax(-1) for part in torch.split(states, _CHUNK)])
