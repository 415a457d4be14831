"""The settings of a live store: durability, bounds, and when documents go to files."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.build_index.options import MAX_SEGMENT_TOKENS
from suffolk.datastore.datastore import MAX_THREADS, RESIDENCIES
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.store.live_store.log import DURABILITIES, INTERVAL

EVICTIONS = ("age", "use")
DEFAULT_GROUP_TOKENS = 1 << 20
DEFAULT_FLUSH_TOKENS = 32 << 20
MAX_BATCH_TOKENS = 1 << 27
"""The largest number of tokens of one append; its log record has at most 1 GiB."""


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Settings of a live store.

    Attributes:
        durability: when an append is acknowledged. ``always``: its record is on disk. ``interval``: the record is written, and
            is synced within ``interval`` seconds. ``none``: the record is written, and the system decides when it is
            synced. In all three, an acknowledged append survives the end of the process. Only with
            ``always`` does every acknowledged append survive a power loss.
        interval: seconds between syncs.
        max_tokens, max_bytes: bounds of what was appended; 0: none. ``max_tokens`` also bounds the tokens in published live
            segments, ``max_bytes`` only memory. The oldest documents go first.
        max_group_tokens: bound of each group. Its oldest documents go first.
        ttl_seconds: documents that are older go; 0: none do.
        evict: the order of eviction. ``age``: the oldest documents first. ``use``: whole groups
            first, the least recently used one first; after all groups, the oldest other documents.
        flush_tokens: documents without a group are published as segment files when they have this many tokens; 0: only
            ``flush`` publishes.
        residency, threads: as ``suffolk.datastore.datastore.open_datastore``.

    Raises:
        InvalidArgument: a value is out of its bounds.
    """

    durability: str = INTERVAL
    interval: float = 0.1
    max_tokens: int = 0
    max_bytes: int = 0
    max_group_tokens: int = DEFAULT_GROUP_TOKENS
    ttl_seconds: int = 0
    evict: str = "age"
    flush_tokens: int = DEFAULT_FLUSH_TOKENS
    residency: str = "mmap"
    threads: int = 0

    def __post_init__(self) -> None:
        for good, name, value, allowed in (
            (self.durability in DURABILITIES, "durability", self.durability, f"one of {', '.join(DURABILITIES)}"),
            (0 < self.interval <= 3600, "interval", self.interval, "a number of seconds above 0, at most 3600"),
            (self.max_tokens >= 0, "max_tokens", self.max_tokens, "0 (no bound) or more"),
            (self.max_bytes >= 0, "max_bytes", self.max_bytes, "0 (no bound) or more"),
            (self.max_group_tokens > 0, "max_group_tokens", self.max_group_tokens, "1 or more"),
            (self.ttl_seconds >= 0, "ttl_seconds", self.ttl_seconds, "0 (no limit) or more"),
            (self.evict in EVICTIONS, "evict", self.evict, f"one of {', '.join(EVICTIONS)}"),
            (self.flush_tokens >= 0, "flush_tokens", self.flush_tokens, "0 (only flush publishes) or more"),
            (self.residency in RESIDENCIES, "residency", self.residency, f"one of {', '.join(RESIDENCIES)}"),
            (0 <= self.threads <= MAX_THREADS, "threads", self.threads, f"0 (every core) to {MAX_THREADS}"),
        ):
            if not good:
                raise InvalidArgument(Field(name), f": {value} is not allowed; give {allowed}")

    @property
    def most_segment_tokens(self) -> int:
        """About the largest size of a published live segment. Bounds evict whole segments, so theirs are small."""
        return min(MAX_SEGMENT_TOKENS, max(1, self.max_tokens // 8)) if self.max_tokens else MAX_SEGMENT_TOKENS

    @property
    def segment_seconds(self) -> int:
        """Seconds of appends that a published live segment may hold, because segments expire whole; 0: any number."""
        return max(1, self.ttl_seconds // 8) if self.ttl_seconds else 0
