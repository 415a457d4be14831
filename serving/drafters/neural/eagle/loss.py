"""What an EAGLE head is trained to minimise (Li et al. 2024, EAGLE, section on training)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from suffolk.serving.drafters.training.head import Batch, HeadLoss

if TYPE_CHECKING:
    from suffolk.serving.drafters.neural.eagle.model import EagleHead

_TOKEN_WEIGHT = 0.1


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention in which every row sees those before it and itself."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def head_loss(head: EagleHead, batch: Batch) -> HeadLoss:
    """Smooth L1 between predicted and true hidden states, plus 0.1 times the cross-entropy between what the output layer makes of
    either; means over the pairs whose outcome tells of a counted token, for the cross-entropy only of those where a draft is begun.
    In training mode the head's inputs get their noise. Acceptance is that of the first depth, for which there are logits."""
    tokens, features = batch.tokens, head.fuse(batch.features)
    given = features
    if head.training and head.noise:
        given = features + (torch.rand_like(features) - 0.5) * head.noise
    positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    predicted = head.step(tokens[:, 1:], given[:, :-1], positions, causal)
    counted = batch.counted[:, 2:]
    predicted, true = predicted[:, :-1], features[:, 1:-1]
    distance = F.smooth_l1_loss(predicted[counted], true[counted], reduction="sum") / max(1, true[counted].numel())
    begun = counted & batch.starts[:, :-2]
    with torch.no_grad():
        law = head.logits(true[begun]).float().softmax(-1)
    likely = head.logits(predicted[begun]).float().log_softmax(-1)
    hits = (likely.argmax(-1) == tokens[:, 2:][begun]).sum()
    loss = distance - _TOKEN_WEIGHT * (law * likely).sum() / max(1, len(likely))
    return HeadLoss(loss, hits[None], torch.full_like(hits, len(likely))[None])
