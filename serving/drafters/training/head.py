"""The interface of trainable draft heads, and their batches and losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of text with the target's hidden states, all on one device.

    Attributes:
        tokens: int64[windows, n].
        counted: bool[windows, n], the tokens whose prediction is trained: answers, not prompts or padding.
        features: float[windows, n, layers, width], hidden states of the layers that the head reads; those of token i have read
            tokens 0..i.
        begun: bool[windows, n], the hidden states behind which a draft begins; None: all. Logits are made for these drafts alone.
    """

    tokens: torch.Tensor
    counted: torch.Tensor
    features: torch.Tensor
    begun: torch.Tensor | None = None

    @property
    def starts(self) -> torch.Tensor:
        """``begun`` as a tensor: bool[windows, n]."""
        return torch.ones_like(self.counted) if self.begun is None else self.begun

    def thin(self, share: float, ahead: int) -> Batch:
        """The batch with a random ``share`` of its drafts, and at least one.

        It chooses among drafts whose first token counts, ``ahead`` tokens behind the hidden state; among all if none counts.
        """
        first = torch.nn.functional.pad(self.counted[:, ahead:], (0, ahead))
        lots = torch.rand(first.shape, device=first.device).masked_fill(~first, torch.inf)
        return replace(self, begun=lots <= lots.min().clamp(min=share))


@dataclass(frozen=True, slots=True)
class HeadLoss:
    """The loss and the acceptance of a head on a batch.

    Attributes:
        loss: scalar to minimize; a mean over counted predictions.
        hits, seen: float64[depth]: of the counted tokens whose predecessors in the draft were right, how many the best candidate
            hits at each depth, and how many there were. hits / seen is the acceptance by depth. In training they may be of the
            first depths alone.
    """

    loss: torch.Tensor
    hits: torch.Tensor
    seen: torch.Tensor


class TrainableHead(Protocol):
    """A ``torch.nn.Module`` whose own parameters are trained; the target's are none of them."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers whose hidden states it reads, as in ``FeatureDrafter``."""
        ...

    @property
    def ahead(self) -> int:
        """How many tokens behind a hidden state its draft begins: 2 if the head reads the token between, else 1."""
        ...

    def initialize(self, batches: Iterator[Batch]) -> None:
        """Set the first weights from some text; takes as many ``batches`` as it needs, perhaps none."""
        ...

    def losses(self, batch: Batch) -> HeadLoss:
        """The loss and the acceptance by depth of a batch; differentiable in its parameters."""
        ...

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """The trained parameters."""
        ...

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors into an existing folder."""
        ...
