"""Training of an exit: the cross-entropy behind the target's final norm and output layer."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch.func import functional_call

from suffolk.serving.drafters.neural.early_exit.config import ExitConfig
from suffolk.serving.drafters.neural.early_exit.model import ExitHead
from suffolk.serving.drafters.training.head import Batch, HeadLoss
from suffolk.serving.engine.model.target import Target


class TrainableExitHead(ExitHead):
    """An exit as a ``TrainableHead``."""

    def start(self, batches: Iterator[Batch]) -> None:
        """Leave the head as the identity."""

    def losses(self, batch: Batch) -> HeadLoss:
        """As ``TrainableHead.losses``: cross-entropy of the next token, for depth 1."""
        wanted = batch.counted[:, 1:] & batch.starts[:, :-1]
        hidden, tokens = batch.features[:, :-1, 0][wanted], batch.tokens[:, 1:][wanted]
        logits = self(hidden)
        for module in self.behind:
            logits = functional_call(
                module, {name: each.detach() for name, each in module.named_parameters()}, (logits,)
            )
        logits = logits.float()
        loss = F.cross_entropy(logits, tokens)
        hits = (logits.argmax(-1) == tokens).double().sum()
        return HeadLoss(loss, hits[None], torch.full_like(hits, len(tokens))[None])


def new_head(target: Target, layers: int, width: int) -> TrainableExitHead:
    """An exit behind the first ``layers`` of the target's, with a layer of ``width``.

    Raises:
        InvalidArgument: ``layers`` are none or all of the target's.
        Unsupported: as ``ExitHead``.
    """
    return TrainableExitHead(target, ExitConfig(layers, width, target.layers, target.hidden_size, target.vocab_size))
