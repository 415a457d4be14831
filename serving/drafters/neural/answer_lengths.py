"""How long answers are, and so how much of one is still to come."""

from __future__ import annotations

import math
from collections import deque

_PRIOR_TOKENS = 128.0
_STRENGTH = 4.0
"""Answers that the prior is worth."""
_LEAST = 1e-9
_REMEMBERED = 32


class AnswerLengths:
    """Remembers how long the last answers were. Not thread-safe."""

    def __init__(self) -> None:
        self._known: deque[int] = deque(maxlen=_REMEMBERED)

    def add(self, tokens: int) -> None:
        """An answer ended after so many tokens."""
        self._known.append(tokens)

    def left(self, written: int) -> float:
        """Tokens that an answer of which so many are written should still have: as many as those had that got so far.

        The prior is an answer that may end anywhere. (With the mean length less what is written, one that was longer than most had
        nothing to come, and was never worth reading.)
        """
        longer = [tokens - written for tokens in self._known if tokens > written]
        believed = max(_LEAST, _STRENGTH * math.exp(-written / _PRIOR_TOKENS))
        return (sum(longer) + believed * _PRIOR_TOKENS) / (len(longer) + believed)
