"""Trains an early-exit head to predict the next token from a hidden state."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch.func import functional_call

from suffolk.serving.decoding.drafters.neural.early_exit.config import ExitConfig
from suffolk.serving.decoding.drafters.neural.early_exit.model import ExitHead
from suffolk.serving.decoding.drafters.training.head import Batch, HeadLoss
from suffolk.serving.decoding.engine.model.target import Target


class TrainableExitHead(ExitHead):
    """An early-exit head as a ``TrainableHead``."""

    ahead = 1

    def initialize(self, batches: Iterator[Batch]) -> None:
        """Do nothing. The initial head is the identity."""

    def losses(self, batch: Batch) -> HeadLoss:
        """The cross-entropy of the token after each hidden state."""
        wanted = batch.counted[:, 1:] & batch.starts[:, :-1]
        hidden, tokens = batch.features[:, :-1, 0][wanted], batch.tokens[:, 1:][wanted]
        logits = self(hidden)
        for module in self._behind:
            frozen = {name: each.detach() for name, each in module.named_parameters()}
            logits = functional_call(module, frozen, (logits,))
        logits = logits.float()
        loss = F.cross_entropy(logits, tokens)
        hits = (logits.argmax(-1) == tokens).double().sum()
        return HeadLoss(loss, hits[None], torch.full_like(hits, len(tokens))[None])


def new_head(target: Target, layers: int | None = None, width: int | None = None) -> TrainableExitHead:
    """A head after the target's first ``layers``, by default half of them, with a block of ``width``, by default the hidden size.

    Raises InvalidArgument for no or all layers.
    """
    layers = max(1, target.layers // 2) if layers is None else layers
    width = target.hidden_size if width is None else width
    return TrainableExitHead(target, ExitConfig(layers, width, target.layers, target.hidden_size, target.vocab_size))
