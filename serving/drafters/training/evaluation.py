"""Evaluates a head on held-out windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from suffolk.serving.drafters.training.features import FeatureSource
from suffolk.serving.drafters.training.head import TrainableHead
from suffolk.serving.drafters.training.tally import Tally


def evaluate(
    head: TrainableHead, source: FeatureSource, windows: Sequence[int], batch: int, seed: int, device: torch.device
) -> Tally:
    """Loss and acceptance over ``windows``, by their numbers, ``batch`` at a time, in evaluation mode.

    The random generators of training are unchanged afterwards.
    """
    tally = Tally()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad(), evaluation_mode(head):
        torch.manual_seed(seed)
        for begin in range(0, len(windows), batch):
            tally.add(head.losses(source.batch(windows[begin : begin + batch])))
    return tally


@contextmanager
def evaluation_mode(head: TrainableHead) -> Iterator[None]:
    """Inside it the head is in evaluation mode: without dropout and noise."""
    assert isinstance(head, torch.nn.Module)  # as TrainableHead says
    head.eval()
    try:
        yield
    finally:
        head.train()
