"""Decides how many prompt tokens a pass reads: fewer while other requests decode."""

from __future__ import annotations

from collections import deque
from statistics import median

from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK

EXTRA_PASSES = 1.0
"""Time that prompt tokens may add to a pass in which other requests decode, as a multiple of a pass without prompt tokens."""
LEAST_TOKENS = 16
"""Prompt tokens that a pass may read in any case. Few tokens cost little more than one."""
_RATE = 0.2
_PASSES = 9
"""Recent passes without prompt tokens, whose median time is the unit of EXTRA_PASSES. While a long prompt is read, no such pass
runs. So without a median, a single slow pass would decide for the whole prompt."""


class PrefillPace:
    """Chooses the prompt tokens of a pass, over all requests, from measured times. Not thread-safe.

    While other requests decode, the tokens may add about EXTRA_PASSES to the time of a pass. So a long prompt of one caller does
    not delay the next tokens of the others. Otherwise a pass reads PREFILL_CHUNK tokens.
    """

    def __init__(self) -> None:
        self._passes: deque[float] = deque(maxlen=_PASSES)  # seconds of the last passes without prompt tokens
        self._token_seconds = 0.0  # that a prompt token adds to a pass; 0: not measured

    def tokens(self, decoding: int) -> int:
        """The prompt tokens of the next pass, in which ``decoding`` requests decode."""
        if not decoding or not self._passes:
            return PREFILL_CHUNK
        if not self._token_seconds:
            return LEAST_TOKENS
        return min(max(int(EXTRA_PASSES * median(self._passes) / self._token_seconds), LEAST_TOKENS), PREFILL_CHUNK)

    def learn(self, read: int, decoding: int, seconds: float) -> None:
        """Learn from a pass that read ``read`` prompt tokens and in which ``decoding`` requests decoded."""
        if not read:
            self._passes.append(seconds)
        else:
            rest = median(self._passes) if decoding and self._passes else 0.0
            found = max(seconds - rest, 0.1 * seconds) / read
            self._token_seconds += (_RATE if self._token_seconds else 1.0) * (found - self._token_seconds)
