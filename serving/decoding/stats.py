"""What generations did, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

BY_SOURCE = ("proposed_by_source", "verified_by_source", "accepted_by_source")
PARTS = ("prefill", "draft", "forward", "verify", "compact", "other")


@dataclass(slots=True)
class GenerationStats:
    """Counts and seconds of one request. The pass that ends its prompt gives the first token and is not a step.

    Attributes:
        prompt_tokens: length of the prompt.
        tokens: tokens generated, the first included.
        steps: target passes after the prompt's.
        proposals: steps in which the drafter was asked.
        proposed_by_source, verified_by_source, accepted_by_source: nodes that came, nodes the target looked at, and accepted
            drafted tokens, by source bits (a shared node counts once, under all its bits together); ``nodes_proposed``,
            ``nodes_verified`` and ``accepted`` are their sums.
        missed: proposals that failed, by reason: faults the loop caught, and those the drafter reports.
        seconds: of the steps it took part in, by part: prefill, draft, forward, verify, compact, other.
        finish: why the text ended: eos, stop, length (max_new_tokens), context (the model's length), cancelled or error; empty
            while it runs.
    """

    prompt_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    proposals: int = 0
    proposed_by_source: Counter[int] = field(default_factory=Counter)
    verified_by_source: Counter[int] = field(default_factory=Counter)
    accepted_by_source: Counter[int] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    finish: str = ""

    @property
    def nodes_proposed(self) -> int:
        return sum(self.proposed_by_source.values())

    @property
    def nodes_verified(self) -> int:
        return sum(self.verified_by_source.values())

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

    def add_seconds(self, parts: Mapping[str, float]) -> None:
        """Book the parts of one step."""
        for part, seconds in parts.items():
            self.seconds[part] += seconds

    def to_dict(self) -> dict[str, Any]:
        """All fields and derived values, ready for JSON."""
        fields = asdict(self)
        fields |= _by_source(self) | {"missed": dict(self.missed)}
        derived = (
            "nodes_proposed",
            "nodes_verified",
            "accepted",
            "mean_generated_length",
            "decode_seconds",
            "tokens_per_second",
        )
        return fields | {name: getattr(self, name) for name in derived}


@dataclass(slots=True)
class LoopStats:
    """Sums over all requests of a step loop.

    Attributes:
        passes: forward passes of the target; ``rows`` in them, and ``turns``: requests that took part, summed over passes.
        seconds: by part, prompts not told apart.
        requests: requests that ended; ``finished``: the same by why.
        tokens, steps, proposals, missed, and those by source: sums over ended requests.
    """

    passes: int = 0
    rows: int = 0
    turns: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS[1:], 0.0))
    requests: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    proposals: int = 0
    proposed_by_source: Counter[int] = field(default_factory=Counter)
    verified_by_source: Counter[int] = field(default_factory=Counter)
    accepted_by_source: Counter[int] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)

    def add_step(self, requests: int, rows: int, parts: Mapping[str, float]) -> None:
        """Book one pass."""
        self.passes += 1
        self.rows += rows
        self.turns += requests
        for part, seconds in parts.items():
            self.seconds[part] += seconds

    def add_request(self, stats: GenerationStats) -> None:
        """Book a request that has ended."""
        self.requests += 1
        self.finished[stats.finish] += 1
        for name in ("prompt_tokens", "tokens", "steps", "proposals"):
            setattr(self, name, getattr(self, name) + getattr(stats, name))
        for name in BY_SOURCE:
            getattr(self, name).update(getattr(stats, name))
        self.missed.update(stats.missed)

    def to_dict(self) -> dict[str, Any]:
        """All fields and derived values, ready for JSON."""
        fields = asdict(self)
        return fields | _by_source(self) | {"finished": dict(self.finished), "missed": dict(self.missed)}


def _by_source(stats: GenerationStats | LoopStats) -> dict[str, dict[str, int]]:
    return {name: {str(bits): count for bits, count in getattr(stats, name).items()} for name in BY_SOURCE}
