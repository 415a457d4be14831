"""Counts the tokens of a predicted text that are missing from the generated text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


class PredictionCounter:
    """Follows a generated text token by token. Not thread-safe.

    It computes the longest common subsequence of both texts, with one bit for each predicted token (Hyyrö 2004, "Bit-parallel
    LCS-length computation revisited"). Adding a token takes time linear in the length of the prediction.
    """

    def __init__(self, prediction: npt.NDArray[np.int32]) -> None:
        """``prediction``: int32[k], the tokens of the predicted text."""
        self._prediction = prediction
        self._all = (1 << len(prediction)) - 1
        self._missing = self._all

    @property
    def missing(self) -> int:
        """Predicted tokens that a shortest diff from the predicted to the generated text deletes."""
        return self._missing.bit_count()

    def add(self, tokens: Sequence[int]) -> None:
        """Append ``tokens`` to the generated text."""
        for token in tokens:
            equal = int.from_bytes(np.packbits(self._prediction == token, bitorder="little").tobytes(), "little")
            found = self._missing & equal
            self._missing = ((self._missing + found) | (self._missing - found)) & self._all
