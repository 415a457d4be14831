"""The quality of a head: losses and acceptance by depth over batches, and the learning curve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from suffolk.serving.drafters.training.features import FeatureSource
from suffolk.serving.drafters.training.head import Batch, HeadLoss, TrainableHead
from suffolk.serving.engine.model.target import Target

_PROBED_TOKENS = 128


@dataclass(slots=True)
class Tally:
    """Sums over batches, ready for JSON. Not thread-safe.

    Attributes:
        weight: counted predictions of the first depth. ``loss``: the sum of losses, each times its batch's weight.
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
        """By depth: the share of right tokens among those whose predecessors in the draft were right."""
        return [hit / max(seen, 1.0) for hit, seen in zip(self.hits, self.seen, strict=True)]


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the learning curve: the head's quality after ``step`` steps.

    Attributes:
        tokens: trained on so far, repetitions included. ``seconds``: of training so far, over all runs.
        learning_rate: of the last step.
        loss, acceptance: of the steps since the last point; None before the first step.
        held_out_loss, held_out_acceptance: of held-out windows, with the head as it is; None if none are held out.
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
    """The expected accepted tokens of a draft with one candidate a depth."""
    return float(np.cumprod(acceptance).sum())


def evaluate(
    head: TrainableHead, source: FeatureSource, windows: Sequence[int], batch: int, seed: int, device: torch.device
) -> Tally:
    """Loss and acceptance over ``windows``, by their numbers, ``batch`` at a time, in evaluation mode.

    The random generators of training are unchanged afterwards.
    """
    tally = Tally()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad(), _evaluation_mode(head):
        torch.manual_seed(seed)
        for begin in range(0, len(windows), batch):
            tally.add(head.losses(source.batch(windows[begin : begin + batch])))
    return tally


def draft_depth(head: TrainableHead, target: Target) -> int:
    """How many tokens ahead ``head`` drafts, from its losses on a batch of zeros."""
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
    """Inside it the head is in evaluation mode: without dropout and noise."""
    assert isinstance(head, torch.nn.Module)  # as TrainableHead says
    head.eval()
    try:
        yield
    finally:
        head.train()
