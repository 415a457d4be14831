"""What a live store does in the background: it evicts, publishes, and rewrites the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from suffolk.serving.store.live_store.bounds import Bounds
from suffolk.serving.store.live_store.publish import live_segments
from suffolk.serving.store.live_store.published_files import PublishedFiles
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.writer import LiveWriter

log = logging.getLogger(__name__)

KEEP_SECONDS = 0.5
"""Seconds between two rounds, and the first pause of ``work`` after an error. The pause doubles up to LONGEST_PAUSE."""
LONGEST_PAUSE = 32.0


class Maintenance:
    """The background work of one store. A thread calls ``round``.

    Attributes:
        error: the error of the last work; None if it succeeded.
    """

    def __init__(self, writer: LiveWriter, files: PublishedFiles, bounds: Bounds, settings: LiveSettings) -> None:
        self._writer = writer
        self._files = files
        self._bounds = bounds
        self._settings = settings
        self._pause, self._retry_at = KEEP_SECONDS, 0.0
        self.error: str | None = None

    def is_due(self) -> bool:
        """Whether a bound is exceeded, or a publication is due."""
        bounds = self._bounds
        return not self._writer.repeats and (
            self._flush_is_due() or bounds.excess(self._files.live_tokens()) > 0 or bounds.memory_excess() > 0
        )

    def round(self) -> None:
        """Call ``work``. An error is logged and kept in ``error``. During the pause after an error, only ``relieve`` is
        called."""
        now = time.monotonic()
        if now < self._retry_at:  # a wake-up by each append must not repeat a failure immediately
            self._try(self.relieve)
        elif self._try(self.work):
            self.error, self._pause = None, KEEP_SECONDS
        else:
            self._retry_at, self._pause = now + self._pause, min(2 * self._pause, LONGEST_PAUSE)

    def work(self) -> None:
        """Evict, publish and rewrite the log where this is due. If the store repeats the changes of another store, only the log is
        rewritten.

        Raises:
            Unavailable: another process writes to the datastore.
            ResourceExhausted: the disk is full.
        """
        try:
            with self._files.lock:
                if self._writer.repeats:
                    return
                self._evict()
                if self._flush_is_due():
                    self._files.flush()
        finally:
            self._writer.checkpoint()

    def relieve(self) -> None:
        """Keep the documents in memory within their bounds while nothing can be published."""
        with self._files.lock:
            if not self._writer.repeats:
                self._evict_memory(self._bounds.excess(0))

    def _flush_is_due(self) -> bool:
        """Whether documents without a group have at least ``flush_tokens`` tokens. Removed documents count until the next flush."""
        flush, writer = self._settings.flush_tokens, self._writer
        return bool(flush and writer.unpublished_tokens >= flush and writer.index.stats()["tokens"] >= flush)

    def _evict(self) -> None:
        """Remove published live segments, the oldest first, then documents in memory."""
        excess = self._bounds.excess(0)  # if publishing fails: the excess of the documents in memory alone
        try:
            excess = self._evict_published()
        finally:
            self._evict_memory(excess)

    def _evict_memory(self, excess: int) -> None:
        self._bounds.evict(max(excess, self._bounds.memory_excess()))

    def _evict_published(self) -> int:
        """Remove published live segments, the oldest first. Returns the tokens that are left to evict."""
        files, excess = self._files, self._bounds.excess(self._files.live_tokens())
        if files.manifest is None:
            return excess
        limit = self._writer.clock.now() - self._settings.ttl_seconds if self._settings.ttl_seconds else None
        names = []
        for entry, newest in live_segments(files.manifest):
            if excess > 0 or (limit is not None and newest < limit):
                names.append(entry.name)
                excess -= entry.tokens
        if names and len(names) == len(files.manifest.segments):
            if files.flush() is not None:  # a generation needs a segment; the flush added one, so all of these can go
                return self._evict_published()
            if not files.size()[1]:
                return excess  # the last segment stays, without documents, until another is published
        if names:
            tokens, documents = files.size()
            files.drop(names)
            left_tokens, left_documents = files.size()
            self._bounds.count_evicted(documents - left_documents, tokens - left_tokens)
        return excess

    def _try(self, work: Callable[[], None]) -> bool:
        """Call ``work``. Returns whether it succeeded."""
        try:
            work()
        except Exception as error:  # noqa: BLE001  an error of any kind must not end the thread
            reason = str(error) or type(error).__name__
            if reason != self.error:
                log.warning("background work of a live store failed: %s", reason)
            self.error = reason
            return False
        return True
