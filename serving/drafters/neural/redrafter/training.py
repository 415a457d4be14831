"""Training of a recurrent head: its loss and its first weights (ReDrafter, section 3.1).

The feature of token i has read tokens 0..i. When a draft begins, the target has also sampled token i + 1. The head's own first
token is therefore i + 2: at depth d it has read tokens i+1 .. i+d and predicts token i + 1 + d.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from suffolk.serving.drafters.neural.redrafter.config import LossConfig, RedrafterConfig
from suffolk.serving.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.drafters.training.head import Batch, HeadLoss
from suffolk.serving.drafters.training.least_squares import LeastSquares
from suffolk.serving.engine.model.target import Target

_MEMORY = 0.7
"""Standard deviation of a state's share in the next state, beside an embedding of size 1."""


class TrainableRedrafterHead(RedrafterHead):
    """A recurrent head as a ``TrainableHead``. For one thread.

    Attributes:
        loss: the depth of its loss, and whether it is distilled.
    """

    def __init__(
        self,
        config: RedrafterConfig,
        target: Target,
        dtype: torch.dtype | None = None,
        loss: LossConfig | None = None,
    ) -> None:
        """As ``RedrafterHead``."""
        super().__init__(config, target, dtype)
        self.loss = loss or LossConfig()

    def start(self, batches: Iterator[Batch]) -> None:
        """Set the first weights by least squares."""
        start_linear(self, batches, self.loss.tokens)

    def losses(self, batch: Batch) -> HeadLoss:
        """As ``TrainableHead.losses``, for depths 1..``loss.tokens``."""
        return head_loss(self, batch, self.loss)


def head_loss(head: RedrafterHead, batch: Batch, config: LossConfig) -> HeadLoss:
    """The sum over ``config.tokens`` depths of the mean cross-entropy of counted tokens in the drafts that begin.

    With ``distillation`` the labels at depth d are the target's distribution of token i + 1 + d, from the feature of token i + d
    (knowledge distillation; the same tokens are fed). Windows that are too short for a depth add nothing to it.
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
        aim = head.target_logits(batch.features[rows, places + depth, 0]) if config.distillation else None
        loss = loss + _mean(_cross_entropy(logits, labels, aim), counted)
        hit = logits.argmax(-1) == labels
        seen[depth - 1] = (counted & right).sum()
        hits[depth - 1] = (counted & right & hit).sum()
        right = right & hit
    return HeadLoss(loss, hits, seen)


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor, aim: torch.Tensor | None) -> torch.Tensor:
    """float[drafts], of ``logits`` [drafts, vocab] against ``labels``, or against the distribution of the logits ``aim``."""
    log_chances = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    if aim is None:
        return -log_chances.gather(-1, labels[..., None])[..., 0]
    return -(aim.detach().to(log_chances.dtype).softmax(-1) * log_chances).sum(-1)


def _mean(values: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    return (values * counted).sum() / counted.sum().clamp(min=1)


@torch.no_grad()
def start_linear(head: RedrafterHead, batches: Iterator[Batch], depth: int) -> None:
    """Make states random features of the drafted tokens, and the output layer a least-squares map.

    The map leads from [h; s_t] to the target's hidden state that predicts the same token, over counted tokens up to ``depth``
    ahead. Blocks add nothing at first. A head whose blocks are of another width than [h; s_t] stays as it is.
    """
    if not isinstance(head.projection, torch.nn.Identity):
        return
    if head.config.recurrent:
        _scale_states(head)
    squares = LeastSquares()
    for batch in batches:
        _add(squares, head, batch, depth)
        if squares.enough:
            break
    for parameter in head.blocks.parameters():
        parameter.zero_()
    found = squares.solve()
    if head.config.output == "own":
        found = head.target_weight().to(found.dtype) @ found
    weight = head.output.weight
    assert isinstance(weight, torch.Tensor)
    weight[: len(found)].copy_(found[: len(weight)])


def _scale_states(head: RedrafterHead) -> None:
    width = head.config.hidden_size**0.5
    torch.nn.init.normal_(head.token_to_state.weight, 0.0, 1 / (head.embedding_spread() * width))
    torch.nn.init.normal_(head.state_to_state.weight, 0.0, _MEMORY / width)


def _add(squares: LeastSquares, head: RedrafterHead, batch: Batch, depth: int) -> None:
    tokens, features = batch.tokens, batch.features[:, :, 0]
    states = head.initial_state(tokens)
    for ahead in range(1, min(depth, tokens.shape[1] - 2) + 1):
        count = tokens.shape[1] - ahead - 1
        states = head.advance(states[:, :count], tokens[:, ahead : ahead + count])
        counted = batch.counted[:, ahead + 1 :]
        given = torch.cat([features[:, :count].to(states.dtype), states], -1)
        squares.add(given[counted], features[:, ahead : ahead + count][counted])
