"""Options of the measurement of live indexes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class LiveBenchOptions:
    """Options of ``suffolk bench live``; the command documents them.

    Raises:
        InvalidArgument: a number is below 1.
    """

    store: Path
    tokens: int = 8_000_000
    rival_tokens: int = 2_000_000
    document_tokens: int = 500
    turns: int = 8
    rate: int = 100_000
    queries: int = 4_000
    groups: int = 100_000
    max_match: int = 16
    min_match: int = 2
    max_depth: int = 10
    max_nodes: int = 64
    against: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "seed" and isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise InvalidArgument(f"--{name.replace('_', '-')} is {value}; it must be 1 or more")
