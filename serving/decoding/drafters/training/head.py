"""The interface of trainable draft heads, their batches and losses, and the fit of their first weights."""

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
        counted: bool[windows, n], whether the loss of each token counts: true in answers, false in prompts and padding.
        features: float[windows, n, layers, width], the target's hidden states for the head. The state of token i depends on
            tokens 0..i.
        begun: bool[windows, n], the hidden states after which a draft begins; None for all. The other hidden states need
            no logits.
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
        """The batch with a random ``share`` of its drafts, and at least one draft.

        Only drafts whose first token counts are chosen, if there are any. That token is ``ahead`` tokens after the hidden state.
        """
        first = torch.nn.functional.pad(self.counted[:, ahead:], (0, ahead))
        lots = torch.rand(first.shape, device=first.device).masked_fill(~first, torch.inf)
        return replace(self, begun=lots <= lots.min().clamp(min=share))


@dataclass(frozen=True, slots=True)
class HeadLoss:
    """The loss and the acceptance of a head on a batch.

    Attributes:
        loss: the scalar to minimize, a mean over counted predictions.
        seen: float64[depth], the counted tokens whose predecessors in the draft were right. Training may omit later depths.
        hits: float64[depth], the tokens of ``seen`` that equal the best candidate. hits / seen is the acceptance by depth.
    """

    loss: torch.Tensor
    hits: torch.Tensor
    seen: torch.Tensor


class TrainableHead(Protocol):
    """A ``torch.nn.Module`` whose parameters are trained. The target's parameters are not among them."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers whose hidden states it reads, as in ``FeatureDrafter``."""
        ...

    @property
    def ahead(self) -> int:
        """The distance from a hidden state to the first drafted token: 2 if the head reads the token between, else 1."""
        ...

    def initialize(self, batches: Iterator[Batch]) -> None:
        """Set the initial weights. May read some of ``batches``."""
        ...

    def losses(self, batch: Batch) -> HeadLoss:
        """The loss and the acceptance of a batch. The loss is differentiable with respect to the parameters."""
        ...

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """The trained parameters."""
        ...

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors into an existing folder."""
        ...


_RIDGE = 1e-4
"""The ridge, as a share of each input's sum of squares."""
_ROWS = 16
"""Rows needed for each input."""


class LeastSquares:
    """Sums of products for the linear map x -> y, in fp64. Not thread-safe."""

    def __init__(self) -> None:
        self._rows = 0
        self._inputs: torch.Tensor | None = None
        self._both: torch.Tensor | None = None

    @property
    def enough(self) -> bool:
        """Whether the rows suffice for ``solve``."""
        return self._inputs is not None and self._rows >= _ROWS * len(self._inputs)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add ``x`` float[rows, inputs] and the labels ``y`` float[rows, outputs]."""
        x, y = x.double(), y.double()
        inputs, both = x.T @ x, x.T @ y
        self._rows += len(x)
        self._inputs = inputs if self._inputs is None else self._inputs + inputs
        self._both = both if self._both is None else self._both + both

    def solve(self) -> torch.Tensor:
        """float64[outputs, inputs], the weights of a linear layer. REQUIRES: rows were added."""
        assert self._inputs is not None
        assert self._both is not None
        squares = self._inputs.diagonal()
        ridge = _RIDGE * squares.clamp(min=1e-9 * float(squares.max()) + 1e-30)
        found: torch.Tensor = torch.linalg.solve(self._inputs + ridge.diag(), self._both)
        return found.T
