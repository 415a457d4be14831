"""The learning rate and the order of windows in a run."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np


def learning_rate(step: int, steps: int, highest: float, warmup: float) -> float:
    """The learning rate of a step, 0 <= step < steps: linear warm-up, then half a cosine to 0.

    The warm-up to ``highest`` takes the share ``warmup`` of the steps. Source: Loshchilov and Hutter 2017 (SGDR), without restarts.
    """
    rising = round(warmup * steps)
    if step < rising:
        return highest * (step + 1) / rising
    return highest * 0.5 * (1.0 + math.cos(math.pi * (step - rising) / (steps - rising)))


def batches_of(step: int, windows: int, batch: int, accumulate: int, seed: int) -> Iterator[list[int]]:
    """The numbers of the windows in each of the ``accumulate`` batches of a step. The last batch of a pass may be smaller.

    Each pass over all windows has its own order. The order depends only on the arguments, so a resumed run gets the same batches.
    """
    in_a_pass = math.ceil(windows / batch)
    first = step * accumulate
    order, ordered = np.empty(0, np.int64), -1
    for number in range(first, first + accumulate):
        if number // in_a_pass != ordered:
            ordered = number // in_a_pass
            order = np.random.default_rng([seed, ordered]).permutation(windows)
        begin = number % in_a_pass * batch
        yield order[begin : begin + batch].tolist()
