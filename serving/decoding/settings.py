"""What a request asks of the target: how to sample and where to stop."""

from __future__ import annotations

from dataclasses import dataclass

from datastore.errors import InvalidArgument

MAX_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How tokens are drawn and where a text ends. Checked when made; immutable.

    Attributes:
        max_new_tokens: at most this many tokens are generated; 1 or more.
        temperature: 0 for the most likely token, otherwise the logits are divided by it; 0..100.
        top_k: draw among the ``top_k`` likeliest tokens (and those as likely as the last of them); 0 = no limit.
        top_p: draw among the likeliest tokens that together hold this probability; 0 < top_p <= 1.
        seed: the same seed gives the same text, with or without drafts; 0..2^63-1.
        stop: the text ends before the first of these strings.
        ignore_eos: do not end at the model's end-of-text tokens (for measurements).

    Raises:
        InvalidArgument: a value is out of its range.
    """

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise InvalidArgument(f"max_new_tokens is {self.max_new_tokens}; it must be 1 or more")
        if not 0.0 <= self.temperature <= 100.0:  # also refuses NaN
            raise InvalidArgument(f"temperature is {self.temperature}; it must be between 0 (greedy) and 100")
        if self.top_k < 0:
            raise InvalidArgument(f"top_k is {self.top_k}; it must be 0 (no limit) or more")
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidArgument(f"top_p is {self.top_p}; it must be above 0 and at most 1 (no limit)")
        if not 0 <= self.seed <= MAX_SEED:
            raise InvalidArgument(f"seed is {self.seed}; it must be between 0 and {MAX_SEED}")
        if any(not text for text in self.stop):
            raise InvalidArgument("stop contains an empty string; name the text that should end the generation")
