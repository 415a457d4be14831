"""Keeps a live store within its bounds: which documents are evicted, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from suffolk.serving.store.live_store.contents import live_pages, oldest
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.writer import LiveWriter

SLACK = 16
"""A full store is cut to 15/16 of its bound, so that not every append evicts."""


class Bounds:
    """Evicts documents in memory. Thread-safe.

    Attributes:
        evicted_documents, evicted_tokens: evictions since the store was opened, from memory and from files.
    """

    def __init__(self, writer: LiveWriter, settings: LiveSettings) -> None:
        self._writer = writer
        self._settings = settings
        self._used: dict[int, None] = {}  # keys of groups, the most recently appended or queried last
        self._lock = threading.Lock()
        self.evicted_documents = self.evicted_tokens = 0
        for page in live_pages(writer.index, writer.next_sequence, grouped=True, tokens=False):
            self.add(page.groups.tolist())

    def add(self, keys: Iterable[int]) -> None:
        """Note that these groups were appended to; 0 is no group."""
        if self._settings.evict == "use":
            with self._lock:
                for key in keys:
                    self._used.pop(key, None)
                    if key:
                        self._used[key] = None

    def use(self, keys: Iterable[int]) -> None:
        """Note that these groups were queried. Groups without documents are ignored."""
        if self._settings.evict == "use":
            with self._lock:
                for key in keys:
                    if key in self._used:
                        del self._used[key]
                        self._used[key] = None

    def excess(self, published_tokens: int) -> int:
        """Tokens to evict, in files and in memory, if the store has more than ``max_tokens``; else 0.

        Args:
            published_tokens: tokens in published live segments.
        """
        bound = self._settings.max_tokens
        tokens = self._writer.index.stats()["tokens"] + published_tokens
        return tokens - bound + bound // SLACK if bound and tokens > bound else 0

    def memory_excess(self) -> int:
        """Tokens to evict in memory, if memory holds more than ``max_bytes``; else 0."""
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
        limit = self._writer.clock.now() - ttl if ttl else None
        expired = limit is not None and before["documents"] and before["oldest_time"] < limit
        if excess > 0 or expired:
            end = self._writer.next_sequence
            self._writer.drop_before(oldest(index, end, excess, limit))
        after = index.stats()
        self.count_evicted(before["documents"] - after["documents"], before["tokens"] - after["tokens"])
        with self._lock:
            if len(self._used) > after["documents"]:  # some groups have no documents any more
                self._used = {key: None for key in self._used if index.group_stats(key)["documents"]}

    def count_evicted(self, documents: int, tokens: int) -> None:
        """Add to the counts of evictions. A difference below 0, which appends at the same time cause, adds nothing."""
        self.evicted_documents += max(0, documents)
        self.evicted_tokens += max(0, tokens)

    def _evict_groups(self, excess: int) -> int:
        """Remove the groups that were used least recently. Returns their tokens."""
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
