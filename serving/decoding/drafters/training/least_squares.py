"""Ridge regression over rows that are added in parts."""

from __future__ import annotations

import torch

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
