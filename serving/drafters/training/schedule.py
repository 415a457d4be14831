"""The learning rate over a run: a linear warm-up, then half a cosine (Loshchilov and Hutter 2017, SGDR, without restarts)."""

from __future__ import annotations

import math


def learning_rate(step: int, steps: int, highest: float, warmup: float) -> float:
    """The rate of a step, 0 <= step < steps: up to ``highest`` over the share ``warmup`` of the steps, then down towards 0."""
    rising = round(warmup * steps)
    if step < rising:
        return highest * (step + 1) / rising
    return highest * 0.5 * (1.0 + math.cos(math.pi * (step - rising) / (steps - rising)))
