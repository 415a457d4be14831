"""Keeps a live store within its bounds: which documents go, and when."""

from __future__ import annotations

import threading
import time

from suffolk.serving.live_store.contents import oldest
from suffolk.serving.live_store.settings import LiveSettings
from suffolk.serving.live_store.writer import LiveWriter

SLACK = 16
"""A full store is cut to 15/16 of its bound, so that not every append evicts."""


class Bounds:
    """Evicts documents in memory. Thread-safe.

    Attributes:
        evicted_documents, evicted_tokens: what went since the store was opened.
    """

    def __init__(self, writer: LiveWriter, settings: LiveSettings) -> None:
        self._writer = writer
        self._settings = settings
        self._used: dict[int, float] = {}  # group key -> time of its last append or query
        self._lock = threading.Lock()
        self.evicted_documents = self.evicted_tokens = 0

    def use(self, keys: set[int]) -> None:
        """Note that these groups were appended to or queried."""
        if self._settings.evict == "use":
            now = time.monotonic()
            with self._lock:
                for key in keys - {0}:
                    self._used.pop(key, None)
                    self._used[key] = now  # the end of a dict is its newest entry

    def excess(self, published_tokens: int) -> int:
        """Tokens to evict, in files and in memory, so that ``max_tokens`` holds again; 0 if it does.

        Args:
            published_tokens: tokens in published live segments.
        """
        bound = self._settings.max_tokens
        tokens = self._writer.index.stats()["tokens"] + published_tokens
        return tokens - bound + bound // SLACK if bound and tokens > bound else 0

    def memory_excess(self) -> int:
        """Tokens to evict in memory, so that ``max_bytes`` holds again; 0 if it does."""
        bound, stats = self._settings.max_bytes, self._writer.index.stats()
        if not bound or stats["bytes"] <= bound:
            return 0
        return int((stats["bytes"] - bound + bound // SLACK) * stats["tokens"] // stats["bytes"])

    def evict(self, excess: int) -> None:
        """Remove documents in memory with ``excess`` tokens in all, and documents older than the time to live.

        Raises:
            ResourceExhausted, Unavailable: as ``LiveWriter.remove``.
        """
        index = self._writer.index
        before = index.stats()
        if excess > 0 and self._settings.evict == "use":
            excess -= self._evict_groups(excess)
        ttl = self._settings.ttl_seconds
        limit = self._writer.now() - ttl if ttl else None
        expired = limit is not None and before["documents"] and before["oldest_time"] < limit
        if excess > 0 or expired:
            end = self._writer.next_sequence
            self._writer.drop_before(oldest(index, end, excess, limit))
        after = index.stats()
        self.evicted_documents += max(0, before["documents"] - after["documents"])
        self.evicted_tokens += max(0, before["tokens"] - after["tokens"])

    def _evict_groups(self, excess: int) -> int:
        """Remove the groups that were used the longest ago. Returns their tokens."""
        removed: list[int] = []
        tokens = 0
        while tokens < excess:
            with self._lock:
                key = next(iter(self._used), None)
                if key is None:
                    break
                del self._used[key]
            sequences, lengths = self._writer.index.group_documents(key)
            removed += sequences.tolist()
            tokens += int(lengths.sum())
        if removed:
            self._writer.remove(removed)
        return tokens
