"""Which windows a step sees."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np


def batches_of(step: int, windows: int, batch: int, accumulate: int, seed: int) -> Iterator[list[int]]:
    """The numbers of the windows in each of a step's ``accumulate`` batches, of ``batch`` windows or, at the end of a pass, fewer.

    Every pass over all windows has an order of its own. It depends on what is given here alone, so that a resumed run sees what it
    would have seen.
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
