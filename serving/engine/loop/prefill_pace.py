"""How many prompt tokens a pass reads while other requests decode."""

from __future__ import annotations

from suffolk.serving.engine.model.language_model import PREFILL_CHUNK

EXTRA_PASSES = 1.0
"""Time that prompt tokens may add to a pass in which other requests decode, in passes without prompt tokens."""
LEAST_TOKENS = 16
"""Prompt tokens that a pass may read in any case. Few tokens cost little more than one."""
_RATE = 0.2


class PrefillPace:
    """Chooses the prompt tokens of a pass, over all requests, from measured times. Not thread-safe.

    While other requests decode, the tokens may add about EXTRA_PASSES to the time of a pass. So a long prompt of one caller does
    not delay the next tokens of the others. Otherwise a pass reads PREFILL_CHUNK tokens.
    """

    def __init__(self) -> None:
        self._pass_seconds = 0.0  # of a pass without prompt tokens; 0: not measured
        self._token_seconds = 0.0  # that a prompt token adds; 0: not measured

    def tokens(self, decoding: int) -> int:
        """The prompt tokens of the next pass, in which ``decoding`` requests decode."""
        if not decoding or not self._pass_seconds:
            return PREFILL_CHUNK
        if not self._token_seconds:
            return LEAST_TOKENS
        return min(max(int(EXTRA_PASSES * self._pass_seconds / self._token_seconds), LEAST_TOKENS), PREFILL_CHUNK)

    def learn(self, read: int, decoding: int, seconds: float) -> None:
        """Learn from a pass that read ``read`` prompt tokens and in which ``decoding`` requests decoded."""
        if not read:
            self._pass_seconds = _mean(self._pass_seconds, seconds)
        else:
            rest = self._pass_seconds if decoding else 0.0
            self._token_seconds = _mean(self._token_seconds, max(seconds - rest, 0.1 * seconds) / read)


def _mean(before: float, new: float) -> float:
    return before + _RATE * (new - before) if before else new
