"""What a forward pass of the target costs on this device, by the number of tokens in it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from datastore.errors import InvalidArgument
from serving.decoding.kv_cache import KVCache
from serving.decoding.target import Target
from serving.decoding.tree_layout import chain

SIZES = (1, 2, 4, 8, 16, 32, 64)
_CONTEXT = 128
_COMMON_RATE = 0.03
_LOCAL_RATE = 0.3
_OUTLIER = 2.0
_OPTIMISM = 0.998
"""Points that no step visits come down by this per step, so that a bad measurement is not believed for ever."""


class CostCurve:
    """Seconds of a decoding step over n tokens: measured points, linear between them, and corrected by real steps.

    A correction moves all points a little (the machine got busier, the context longer) and the nearest one more. A larger
    step is taken to cost no less than a smaller one, and n tokens no more than n steps of one. Not thread-safe.
    """

    def __init__(self, sizes: Sequence[int], seconds: Sequence[float]) -> None:
        """Points as measured; ``sizes`` rising from 1, ``seconds`` positive. Raises InvalidArgument for others."""
        if (
            len(sizes) != len(seconds)
            or not len(sizes)
            or sizes[0] != 1
            or any(b <= a for a, b in zip(sizes, sizes[1:], strict=False))
        ):
            raise InvalidArgument(
                f"cost curve: sizes {list(sizes)} must rise from 1 and be as many as the {len(seconds)} times"
            )
        if min(seconds) <= 0:
            raise InvalidArgument(f"cost curve: seconds {list(seconds)} must be positive")
        self.sizes = np.asarray(sizes, np.float64)
        self.seconds = np.minimum.accumulate(np.array(seconds, np.float64)[::-1])[::-1]
        self._bound()

    def time(self, size: int) -> float:
        """Seconds of a step over ``size`` tokens, 1 or more; beyond the last point the last slope goes on."""
        return float(self.times(np.asarray([size], np.float64))[0])

    def times(self, sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """float64[n], ``time`` of each of ``sizes``."""
        inside = np.interp(sizes, self.sizes, self.seconds)
        if len(self.sizes) < 2:
            return inside
        slope = max(0.0, (self.seconds[-1] - self.seconds[-2]) / (self.sizes[-1] - self.sizes[-2]))
        return np.asarray(inside + np.maximum(0.0, sizes - self.sizes[-1]) * slope, np.float64)

    def update(self, size: int, seconds: float) -> None:
        """Learn from a real step over ``size`` tokens."""
        ratio = min(max(seconds / self.time(size), 1 / _OUTLIER), _OUTLIER)
        nearest = int(np.argmin(np.abs(np.log(self.sizes / size))))
        here = self.seconds[nearest] * ratio**_LOCAL_RATE
        self.seconds *= ratio**_COMMON_RATE * _OPTIMISM
        self.seconds[nearest] = here
        self.seconds[:nearest] = np.minimum(self.seconds[:nearest], here)
        self.seconds[nearest:] = np.maximum(self.seconds[nearest:], here)
        self._bound()

    def _bound(self) -> None:
        self.seconds = np.minimum(self.seconds, self.sizes * self.seconds[0])


def measure(target: Target, sizes: Sequence[int] = SIZES, repeats: int = 3, budget: float = 4.0) -> CostCurve:
    """Time the target at each size behind a short context: the fastest of ``repeats``, fewer once ``budget`` seconds are spent.

    The fastest, because whatever else the machine does only adds time, and adds it unevenly.
    """
    limit = target.context_length or _CONTEXT + 1 + max(sizes)
    sizes = [size for size in sizes if size < limit]
    context = max(1, min(_CONTEXT, limit - max(sizes) - 1))
    cache = target.new_cache(1, context + max(sizes))
    target.prefill(np.arange(context) % target.vocab_size, cache)
    samples: dict[int, list[float]] = {size: [] for size in sizes}
    start = time.perf_counter()
    for number in range(repeats + 1):
        for size in sizes:
            if number > 1 and time.perf_counter() - start > budget:
                break
            samples[size].append(_time_step(target, size, cache))
    return CostCurve(sizes, [min(times) for times in samples.values()])


def _time_step(target: Target, size: int, cache: KVCache) -> float:
    begin = time.perf_counter()
    target.forward(cache, [0], [chain(np.zeros(size, np.int64))], [size]).argmax(-1).cpu()
    return time.perf_counter() - begin
