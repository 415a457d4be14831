"""What a draft head must offer to be trained. Heads live in serving/drafters/redrafter, eagle and early_exit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of text with what the target made of them, all on one device.

    Attributes:
        tokens: int64[windows, n].
        counted: bool[windows, n], the tokens whose prediction is trained: answers, not prompts or padding.
        features: float[windows, n, layers, width], the target's hidden states of the layers that the head wants: those of token
            i have read tokens 0..i.
        begun: bool[windows, n], the hidden states behind which a draft is begun; None: all of them. Logits are made for these
            drafts alone.
    """

    tokens: torch.Tensor
    counted: torch.Tensor
    features: torch.Tensor
    begun: torch.Tensor | None = None

    @property
    def starts(self) -> torch.Tensor:
        """``begun``, written out: bool[windows, n]."""
        return torch.ones_like(self.counted) if self.begun is None else self.begun

    def thin(self, share: float, ahead: int) -> Batch:
        """The batch with only that share of its drafts, and at least one, drawn at random from those whose first token counts:
        ``ahead`` tokens behind the hidden state. Where none counts, all of them."""
        first = torch.nn.functional.pad(self.counted[:, ahead:], (0, ahead))
        lots = torch.rand(first.shape, device=first.device).masked_fill(~first, torch.inf)
        return replace(self, begun=lots <= lots.min().clamp(min=share))


@dataclass(frozen=True, slots=True)
class HeadLoss:
    """What a head made of a batch.

    Attributes:
        loss: scalar, to be minimised; a mean over what was counted.
        hits, seen: float64[depth]: of the counted tokens whose predecessors in the draft were all right, how many the head's best
            candidate hits at each depth, and how many there were. hits / seen is the acceptance by depth. In training it may be
            that of the first depths alone, where more would cost time.
    """

    loss: torch.Tensor
    hits: torch.Tensor
    seen: torch.Tensor


class TrainableHead(Protocol):
    """A ``torch.nn.Module`` whose own parameters alone are trained; what it needs of the target is none of them."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Whose hidden states of the target it reads, as in ``FeatureDrafter``; an attribute will do."""
        ...

    @property
    def ahead(self) -> int:
        """How many tokens behind a hidden state its draft begins: 2 if the head is told the token between, else 1."""
        ...

    def start(self, batches: Iterator[Batch]) -> None:
        """Set the first weights by what some text shows; takes as many ``batches`` as it needs, which may be none."""
        ...

    def losses(self, batch: Batch) -> HeadLoss:
        """The loss and the acceptance by depth of a batch; differentiable in its parameters."""
        ...

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """What is trained."""
        ...

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors into an existing folder."""
        ...
