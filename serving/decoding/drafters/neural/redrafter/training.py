"""Trains a ReDrafter head: initial weights and loss (ReDrafter, section 3.1).

The hidden state of token i has read tokens 0..i. When a draft begins, the target has also sampled token i + 1. So the first drafted
token is i + 2. At depth d the head has read tokens i+1 .. i+d, and predicts token i + 1 + d.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from suffolk.serving.decoding.drafters.neural.redrafter.config import LossConfig, RedrafterConfig
from suffolk.serving.decoding.drafters.neural.redrafter.model import RedrafterHead
from suffolk.serving.decoding.drafters.training.head import Batch, HeadLoss, LeastSquares
from suffolk.serving.decoding.engine.model.target import Target

_MEMORY = 0.7
"""Weight of the last state in the next state. The embedding has weight 1."""


class TrainableRedrafterHead(RedrafterHead):
    """A ReDrafter head as a ``TrainableHead``."""

    ahead = 2

    def __init__(
        self,
        config: RedrafterConfig,
        target: Target,
        dtype: torch.dtype | None = None,
        loss: LossConfig | None = None,
    ) -> None:
        """The same as ``RedrafterHead``. ``loss``: the loss in training."""
        super().__init__(config, target, dtype)
        self._loss_config = loss or LossConfig()

    @torch.no_grad()
    def initialize(self, batches: Iterator[Batch]) -> None:
        """Set random weights of the state, zero blocks, and a fitted output layer.

        The output layer is the least-squares map, over counted tokens, from [h; s_t] to a hidden state of the target: the state
        that predicts the same token. A head whose blocks are not as wide as [h; s_t] is not changed.
        """
        if not isinstance(self.projection, torch.nn.Identity):
            return
        if self.config.recurrent:
            width = self.config.hidden_size**0.5
            torch.nn.init.normal_(self.token_to_state.weight, 0.0, 1 / (self.embedding_spread() * width))
            torch.nn.init.normal_(self.state_to_state.weight, 0.0, _MEMORY / width)
        squares = LeastSquares()
        for batch in batches:
            self._add(squares, batch)
            if squares.enough:
                break
        for parameter in self.blocks.parameters():
            parameter.zero_()
        found = squares.solve()
        if self.config.output == "own":
            found = self.target_weight().to(found.dtype) @ found
        weight = self.output.weight
        assert isinstance(weight, torch.Tensor)
        weight[: len(found)].copy_(found[: len(weight)])

    def losses(self, batch: Batch) -> HeadLoss:
        """The mean cross-entropy of counted tokens at each depth, summed over depths.

        The label at depth d is the text's token i + 1 + d. With ``distillation``, it is the target's distribution after token
        i + d. Windows too short for a depth are skipped at that depth.
        """
        config, tokens, (rows, places) = self._loss_config, batch.tokens, batch.starts.nonzero(as_tuple=True)
        hits, seen = (torch.zeros(config.tokens, dtype=torch.float64, device=tokens.device) for _ in range(2))
        loss = torch.zeros((), device=tokens.device)
        states = self.initial_state(tokens[rows, places])
        right = torch.ones_like(rows, dtype=torch.bool)  # whether all earlier drafted tokens are right
        for depth in range(1, config.tokens + 1):
            reach = places + depth + 1 < tokens.shape[1]  # drafts with a token at this depth
            rows, places, states, right = rows[reach], places[reach], states[reach], right[reach]
            if not len(rows):
                break
            logits, states = self(batch.features[rows, places, 0], states, tokens[rows, places + depth])
            labels, counted = tokens[rows, places + depth + 1], batch.counted[rows, places + depth + 1]
            wanted = self.target_logits(batch.features[rows, places + depth, 0]) if config.distillation else None
            losses = _cross_entropy(logits, labels, wanted)
            loss = loss + (losses * counted).sum() / counted.sum().clamp(min=1)
            hit = logits.argmax(-1) == labels
            seen[depth - 1] = (counted & right).sum()
            hits[depth - 1] = (counted & right & hit).sum()
            right = right & hit
        return HeadLoss(loss, hits, seen)

    def _add(self, squares: LeastSquares, batch: Batch) -> None:
        tokens, features = batch.tokens, batch.features[:, :, 0]
        states = self.initial_state(tokens)
        for depth in range(1, min(self._loss_config.tokens, tokens.shape[1] - 2) + 1):
            count = tokens.shape[1] - depth - 1
            states = self.advance(states[:, :count], tokens[:, depth : depth + count])
            counted = batch.counted[:, depth + 1 :]
            inputs = torch.cat([features[:, :count].to(states.dtype), states], -1)
            squares.add(inputs[counted], features[:, depth : depth + count][counted])


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor, wanted: torch.Tensor | None) -> torch.Tensor:
    """float[drafts], the cross-entropy of ``logits`` [drafts, vocab] with ``labels``, or with the distribution of ``wanted``."""
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    if wanted is None:
        return -log_probs.gather(-1, labels[..., None])[..., 0]
    return -(wanted.detach().to(log_probs.dtype).softmax(-1) * log_probs).sum(-1)


def new_head(target: Target, tokens: int = 5, distillation: bool = False, **shape: Any) -> TrainableRedrafterHead:
    """A head with random weights, by default with the target's output layer. In fp64 if the target is, else in fp32.

    ``tokens``, ``distillation``: as in ``LossConfig``. ``shape``: as in ``RedrafterConfig``.
    """
    sizes = {"vocab_size": target.vocab_size, "hidden_size": target.hidden_size, "exit_dim": 2 * target.hidden_size}
    config = RedrafterConfig(**(sizes | {"output": "target"} | shape))
    dtype = torch.float64 if target.dtype == torch.float64 else torch.float32
    return TrainableRedrafterHead(config, target, dtype, LossConfig(tokens, distillation))
