"""Loss and acceptance by depth of a head, and the learning curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from suffolk.serving.decoding.drafters.training.features import FeatureSource
from suffolk.serving.decoding.drafters.training.head import Batch, HeadLoss, TrainableHead
from suffolk.serving.decoding.engine.model.target import Target

_PROBED_TOKENS = 128


@dataclass(slots=True)
class Tally:
    """Sums over batches, as values of JSON. Not thread-safe.

    Attributes:
        weight: number of counted predictions at the first depth.
        loss: the sum of the batches' losses, weighted by ``weight``.
        hits, seen: by depth, as in ``HeadLoss``.
    """

    weight: float = 0.0
    loss: float = 0.0
    hits: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)

    def add(self, found: HeadLoss) -> None:
        """Add a batch."""
        hits, seen = found.hits.double().tolist(), found.seen.double().tolist()
        self.merge(Tally(seen[0], float(found.loss.detach()) * seen[0], hits, seen))

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        self.weight += other.weight
        self.loss += other.loss
        self.hits = np.add(self.hits or 0.0, other.hits).tolist()
        self.seen = np.add(self.seen or 0.0, other.seen).tolist()

    @property
    def mean_loss(self) -> float:
        return self.loss / max(self.weight, 1.0)

    @property
    def acceptance(self) -> list[float]:
        """``hits`` / ``seen`` by depth."""
        return [hit / max(seen, 1.0) for hit, seen in zip(self.hits, self.seen, strict=True)]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the learning curve, after ``step`` steps.

    Attributes:
        tokens: number of tokens trained on so far, with repetitions.
        seconds: seconds of training so far, over all runs.
        learning_rate: rate of the last step.
        loss, acceptance: means over the steps since the last point; None before the first step.
        held_out_loss, held_out_acceptance: means over held-out windows; None if none are held out.
    """

    step: int
    tokens: int
    seconds: float
    learning_rate: float
    loss: float | None
    acceptance: list[float] | None
    held_out_loss: float | None
    held_out_acceptance: list[float] | None


def percentages(acceptance: list[float] | None) -> str:
    """Format acceptance by depth: "61 48 30 %"."""
    return "-" if acceptance is None else " ".join(f"{share * 100:.0f}" for share in acceptance) + " %"


def expected_tokens(acceptance: list[float]) -> float:
    """The expected number of accepted tokens of a draft with one candidate per depth."""
    return float(np.cumprod(acceptance).sum())


def evaluate(
    head: TrainableHead, source: FeatureSource, windows: Sequence[int], batch: int, seed: int, device: torch.device
) -> Tally:
    """Loss and acceptance over the windows with these numbers, ``batch`` windows at a time. Random generators are restored."""
    tally = Tally()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad(), _evaluation_mode(head):
        torch.manual_seed(seed)
        for begin in range(0, len(windows), batch):
            tally.add(head.losses(source.batch(windows[begin : begin + batch])))
    return tally


def draft_depth(head: TrainableHead, target: Target) -> int:
    """The number of tokens that ``head`` drafts, found from its losses on a batch of zeros."""
    shape = 1, _PROBED_TOKENS
    batch = Batch(
        torch.zeros(shape, dtype=torch.int64, device=target.device),
        torch.ones(shape, dtype=torch.bool, device=target.device),
        torch.zeros((*shape, len(head.layers), target.hidden_size), dtype=target.dtype, device=target.device),
    )
    with torch.no_grad(), _evaluation_mode(head):
        return len(head.losses(batch).seen)


@contextmanager
def _evaluation_mode(head: TrainableHead) -> Iterator[None]:
    """Set evaluation mode inside the block: no dropout and no noise."""
    assert isinstance(head, torch.nn.Module)  # ``TrainableHead`` requires this
    head.eval()
    try:
        yield
    finally:
        head.train()
