"""A small draft head for tests of training. Importing this module registers it, also in ``tests/fork_server.py``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import suffolk.serving.decoding.drafters.training.run  # noqa: F401 - imported here, before any fork
from suffolk.serving.decoding.drafters.training.head import Batch, HeadLoss
from suffolk.serving.decoding.drafters.training.heads import HEADS, HeadKind, HeadOption
from suffolk.serving.decoding.engine.model.target import Target

DEPTH = 2


class LinearHead(torch.nn.Module):
    """Predicts a token from the target's last feature and the previous token's embedding, with a linear map for each depth.

    Options: ``dropout``, which acts in training, and ``breaks_at``, the first training batch whose loss is NaN.
    """

    ahead = 2

    def __init__(self, target: Target, **options: Any) -> None:
        super().__init__()
        self.layers = (target.layers,)
        self.options = options
        self.batches = 0
        self._shared = (
            target.model.get_input_embeddings(),
            target.model.get_output_embeddings(),
        )  # a tuple, so that torch does not register the parts
        width = self._shared[0].weight.shape[1]
        self.maps = torch.nn.ModuleList(torch.nn.Linear(2 * width, width, dtype=target.dtype) for _ in range(DEPTH))

    def initialize(self, batches: Iterator[Batch]) -> None:
        pass

    def losses(self, batch: Batch) -> HeadLoss:
        embed, output = self._shared
        size = batch.tokens.shape[1]
        state, following = batch.features[:, :, 0], embed(batch.tokens)
        right = torch.ones_like(batch.counted)
        losses, hits, seen = [], [], []
        for depth, each in enumerate(self.maps, 1):
            state = state[:, : size - depth]
            both = F.dropout(
                torch.cat([state, following[:, depth:]], -1), self.options.get("dropout", 0.0), self.training
            )
            state = state + F.silu(each(both))
            logits, wanted = output(state[:, : size - depth - 1]), batch.tokens[:, depth + 1 :]
            left = size - depth - 1
            counted, right = batch.counted[:, depth + 1 :] & batch.starts[:, :left], right[:, :left]
            lost = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
            losses.append((lost * counted).sum() / counted.sum().clamp(min=1))
            found = logits.argmax(-1) == wanted
            seen.append((counted & right).sum())
            hits.append((counted & right & found).sum())
            right = right & found
        self.batches += self.training and torch.is_grad_enabled()
        broken = 0 < self.options.get("breaks_at", 0) <= self.batches
        loss = torch.stack(losses).mean() * (torch.nan if broken else 1.0)
        return HeadLoss(loss, torch.stack(hits).double(), torch.stack(seen).double())

    def save(self, folder: Path) -> None:
        save_file(self.state_dict(), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"model_type": "linear"} | self.options))


HEADS["linear"] = HeadKind(
    "tests.support.linear_head:LinearHead", (HeadOption("dropout", "", "", ""), HeadOption("breaks_at", "", "", ""))
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a saved head."""
    return dict(load_file(folder / "model.safetensors"))


def write_corpus(path: Path, texts: int = 60) -> Path:
    """Make texts of up to 60 letters that repeat the alphabet, each from another letter.

    Every letter determines the next.
    """
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    lines = [(alphabet * 4)[number % 26 :][: 20 + 3 * (number % 14)] for number in range(texts)]
    path.write_text("".join(json.dumps({"text": f"{line}{number}"}) + "\n" for number, line in enumerate(lines)))
    return path
