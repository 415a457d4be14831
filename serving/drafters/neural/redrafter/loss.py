"""What a recurrent head is trained for: the tokens that a draft behind each feature should have had (ReDrafter, section 3.1).

The feature of token i has read tokens 0..i. When a draft begins, the target has drawn token i + 1 besides, so the head's own
first token is i + 2: at depth d it has fed tokens i+1 .. i+d and predicts token i + 1 + d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from suffolk.serving.drafters.neural.redrafter.config import LossConfig
from suffolk.serving.drafters.training.head import Batch, HeadLoss

if TYPE_CHECKING:
    from suffolk.serving.drafters.neural.redrafter.model import RedrafterHead


def head_loss(head: RedrafterHead, batch: Batch, config: LossConfig) -> HeadLoss:
    """The sum over ``config.tokens`` depths of the mean cross-entropy of counted tokens in the drafts that are begun.

    With ``distillation`` the aim at depth d is not the text's token i + 1 + d but the target's own law of it, from the feature of
    token i + d (knowledge distillation; the same tokens are fed). Windows too short for a depth add nothing to it.
    """
    tokens, (rows, places) = batch.tokens, batch.starts.nonzero(as_tuple=True)
    zeros = torch.zeros(config.tokens, dtype=torch.float64, device=tokens.device)
    hits, seen = zeros.clone(), zeros
    loss = torch.zeros((), device=tokens.device)
    states = head.initial_state(tokens[rows, places])
    right = torch.ones_like(rows, dtype=torch.bool)  # all tokens drafted before
    for depth in range(1, config.tokens + 1):
        reach = places + depth + 1 < tokens.shape[1]  # drafts with a token at this depth
        rows, places, states, right = rows[reach], places[reach], states[reach], right[reach]
        if not len(rows):
            break
        logits, states = head(batch.features[rows, places, 0], states, tokens[rows, places + depth])
        labels, counted = tokens[rows, places + depth + 1], batch.counted[rows, places + depth + 1]
        law = head.target_logits(batch.features[rows, places + depth, 0]) if config.distillation else None
        loss = loss + _mean(_cross_entropy(logits, labels, law), counted)
        hit = logits.argmax(-1) == labels
        seen[depth - 1] = (counted & right).sum()
        hits[depth - 1] = (counted & right & hit).sum()
        right = right & hit
    return HeadLoss(loss, hits, seen)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor, aim: torch.Tensor | None) -> torch.Tensor:
    """float[drafts], of ``logits`` [drafts, vocab] against ``labels``, or against the law of the logits ``aim``."""
    log_law = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    if aim is None:
        return -log_law.gather(-1, labels[..., None])[..., 0]
    return -(aim.detach().to(log_law.dtype).softmax(-1) * log_law).sum(-1)


def _mean(values: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    return (values * counted).sum() / counted.sum().clamp(min=1)
