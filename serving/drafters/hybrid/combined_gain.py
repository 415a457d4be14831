"""What two drafts bring together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SHORTER = 0.25


def together(one: npt.ArrayLike, other: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """float64, tokens that two drafts bring of which each alone would bring so many: both are right in part about the same tokens,
    so that the longer counts, and a quarter of the shorter."""
    return np.asarray(np.maximum(one, other) + _SHORTER * np.minimum(one, other), np.float64)


def alone(both: float, other: float) -> float:
    """Tokens that the one brings if the two bring ``both``: the inverse of ``together``."""
    longer = both - _SHORTER * other
    return longer if longer >= other else (both - other) / _SHORTER
