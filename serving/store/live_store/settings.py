"""The settings of a live store: durability, bounds, and when documents go to files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from suffolk.build_index.options import MAX_SEGMENT_TOKENS
from suffolk.datastore.datastore import RESIDENCIES
from suffolk.datastore.settings import Checked, Count, Threads, Within
from suffolk.serving.store.live_store.log import DURABILITIES, INTERVAL

Bound = Annotated[int, Within(0, words="0 (off) or more")]
EVICTIONS = ("age", "use")
DEFAULT_GROUP_TOKENS = 1 << 20
DEFAULT_FLUSH_TOKENS = 32 << 20
MAX_BATCH_TOKENS = 1 << 27
"""The largest number of tokens of one append. They take at most 512 MiB in its log record."""
MAX_BATCH_ORIGIN_BYTES = 1 << 30
"""The largest size of all ids, metadata and groups of one append, and of its log record's columns for them."""


@dataclass(frozen=True, slots=True)
class LiveSettings(Checked):
    """Settings of a live store.

    Attributes:
        durability: when an append is acknowledged. ``always``: its record is on disk. ``interval``: the record is written, and
            is synced within ``interval`` seconds. ``none``: the record is written, and the system decides when it is
            synced. In all three, an acknowledged append survives the end of the process. Only with
            ``always`` does every acknowledged append survive a power loss.
        interval: seconds between syncs.
        max_tokens, max_bytes: bounds of the appended documents; 0: no bound. ``max_tokens`` also bounds the tokens in published
            live segments, ``max_bytes`` only memory. The oldest documents are dropped first.
        max_group_tokens: bound of each group. Its oldest documents are dropped first.
        ttl_seconds: older documents are removed; 0: none are.
        evict: the order of eviction. ``age``: the oldest documents first. ``use``: first whole groups, beginning with the least
            recently used group; after all groups, the oldest other documents.
        flush_tokens: documents without a group are published as segment files when they have this many tokens; 0: only
            ``flush`` publishes.
        residency, threads: as ``suffolk.datastore.datastore.open_datastore``.

    Raises:
        InvalidArgument: a value is out of its bounds.
    """

    durability: Annotated[str, DURABILITIES] = INTERVAL
    interval: Annotated[float, Within(0.001, 3600)] = 0.1
    max_tokens: Bound = 0
    max_bytes: Bound = 0
    max_group_tokens: Count = DEFAULT_GROUP_TOKENS
    ttl_seconds: Bound = 0
    evict: Annotated[str, EVICTIONS] = "age"
    flush_tokens: Bound = DEFAULT_FLUSH_TOKENS
    residency: Annotated[str, RESIDENCIES] = "mmap"
    threads: Threads = 0

    @property
    def most_segment_tokens(self) -> int:
        """The approximate largest size of a published live segment. Whole segments are evicted, so a segment has at most 1/8 of
        ``max_tokens``."""
        return min(MAX_SEGMENT_TOKENS, max(1, self.max_tokens // 8)) if self.max_tokens else MAX_SEGMENT_TOKENS

    @property
    def segment_seconds(self) -> int:
        """Seconds of appends that a published live segment may hold; 0: any number. A segment expires as a whole."""
        return max(1, self.ttl_seconds // 8) if self.ttl_seconds else 0
