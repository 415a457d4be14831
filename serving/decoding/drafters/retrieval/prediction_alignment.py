"""Follows a text along a predicted text."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids

MAX_SUFFIX = 16
"""The longest suffix of the text that is searched in the prediction."""
CONFIDENT = 8
"""Matched tokens after which an alignment counts as right."""


class PredictionAlignment:
    """The position in a prediction where the text goes on. Not thread-safe.

    While the text follows the prediction, the position moves with it. After a difference, the text's longest suffix that occurs
    in the prediction is searched. The position is then at the end of one of its occurrences: the first one after the last
    confident position, or else the last one before it. A token takes time linear in the length of the prediction after a
    difference, and constant time otherwise.

    Attributes:
        prediction: int32[k], its tokens.
        size: tokens of the text so far.
        position: where in the prediction the text goes on, 0..k.
        matched: tokens before ``position`` that end the text; 0 if even its last token does not occur in the prediction.
        anchor: the last confident position, at first 0. The text goes on there if an insertion ends.
    """

    def __init__(self, prediction: Ids) -> None:
        self.prediction = prediction
        self.size = self.position = self.matched = self.anchor = 0
        self._suffix: list[int] = []

    def copy(self) -> PredictionAlignment:
        """An independent alignment of the same text."""
        other = PredictionAlignment(self.prediction)
        other.size, other.position, other.matched, other.anchor = self.size, self.position, self.matched, self.anchor
        other._suffix = self._suffix.copy()
        return other

    def append(self, tokens: Iterable[int]) -> None:
        """Move along the next ``tokens`` of the text."""
        for token in tokens:
            self.size += 1
            self._suffix = [*self._suffix[1 - MAX_SUFFIX :], token]
            if self.position < len(self.prediction) and self.prediction[self.position] == token:
                self.position += 1
                self.matched += 1
            else:
                self._search()
            if self.matched >= CONFIDENT:
                self.anchor = self.position

    def _search(self) -> None:
        """Find the position anew, by the longest suffix."""
        ends = np.flatnonzero(self.prediction == self._suffix[-1])
        self.matched = 0
        while len(ends):
            longest, self.matched = ends, self.matched + 1
            if self.matched == len(self._suffix):
                break
            ends = ends[ends >= self.matched]
            ends = ends[self.prediction[ends - self.matched] == self._suffix[-1 - self.matched]]
        if self.matched:
            after = longest[longest >= self.anchor]
            self.position = int(after[0] if len(after) else longest[-1]) + 1
        else:
            self.position = self.anchor
