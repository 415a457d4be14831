"""What an EAGLE head is trained to minimise (Li et al. 2024, EAGLE, section on training)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from serving.drafters.training.head import Batch

if TYPE_CHECKING:
    from serving.drafters.eagle.model import EagleHead

_TOKEN_WEIGHT = 0.1


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention in which every row sees those before it and itself."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def head_loss(head: EagleHead, batch: Batch) -> torch.Tensor:
    """Smooth L1 between predicted and true hidden states, plus 0.1 times the cross-entropy between what the output layer makes of
    either; means over the pairs whose outcome tells of a counted token. In training mode the head's inputs get their noise."""
    tokens, features = batch.tokens, head.fuse(batch.features)
    given = features
    if head.training and head.noise:
        given = features + (torch.rand_like(features) - 0.5) * head.noise
    positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    predicted = head.step(tokens[:, 1:], given[:, :-1], positions, causal)
    counted = batch.counted[:, 2:]
    found, true = predicted[:, :-1][counted], features[:, 1:-1][counted]
    with torch.no_grad():
        law = head.logits(true).float().softmax(-1)
    count = max(1, len(found))
    likely = head.logits(found).float().log_softmax(-1)
    distance = F.smooth_l1_loss(found, true, reduction="sum") / (count * found.shape[-1])
    return distance - _TOKEN_WEIGHT * (law * likely).sum() / count
