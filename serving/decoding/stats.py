"""What one generation did, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

PARTS = ("prefill", "draft", "forward", "verify", "compact", "other")


@dataclass(slots=True)
class GenerationStats:
    """Counts and seconds of one generation. The prompt's pass gives the first token and is not a step.

    Attributes:
        prompt_tokens: length of the prompt.
        tokens: tokens generated, the first included.
        steps: target passes after the prompt's.
        proposals: steps in which the drafter was asked.
        nodes_proposed, nodes_verified: nodes that came, and nodes the target looked at.
        accepted: accepted drafted tokens; ``accepted_by_source``: the same by source bits (a shared node counts once, under
            all its bits together).
        missed: proposals that failed, by reason: faults the loop caught, and those the drafter reports.
        seconds: by part: prefill, draft, forward, verify, compact, other.
        finish: why the text ended: eos, stop, length (max_new_tokens) or context (the model's length); empty while it runs.
    """

    prompt_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    proposals: int = 0
    nodes_proposed: int = 0
    nodes_verified: int = 0
    accepted_by_source: Counter[int] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    finish: str = ""

    @property
    def accepted(self) -> int:
        return sum(self.accepted_by_source.values())

    @property
    def mean_generated_length(self) -> float:
        """M: tokens per target pass behind the prompt; 1.0 for plain decoding."""
        return (self.tokens - 1) / self.steps if self.steps else 1.0

    @property
    def decode_seconds(self) -> float:
        return sum(self.seconds.values()) - self.seconds["prefill"]

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first, per second behind the prompt's pass."""
        return (self.tokens - 1) / self.decode_seconds if self.decode_seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All fields and derived values, ready for JSON."""
        fields = asdict(self)
        fields["accepted_by_source"] = {str(bits): count for bits, count in self.accepted_by_source.items()}
        fields["missed"] = dict(self.missed)
        derived = ("accepted", "mean_generated_length", "decode_seconds", "tokens_per_second")
        return fields | {name: getattr(self, name) for name in derived}
