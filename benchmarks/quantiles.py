"""Quantiles of latencies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def quantiles_us(seconds: Sequence[float] | npt.NDArray[np.float64]) -> dict[str, float]:
    """Return p50, p90, p99 and mean in microseconds, and the number of calls. Without calls, only that number."""
    if not len(seconds):
        return {"calls": 0}
    p50, p90, p99 = (float(value) * 1e6 for value in np.percentile(seconds, [50, 90, 99]))
    return {
        "p50_us": p50,
        "p90_us": p90,
        "p99_us": p99,
        "mean_us": float(np.mean(seconds)) * 1e6,
        "calls": len(seconds),
    }
