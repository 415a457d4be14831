"""Changes the documents in memory: each change is in the log before it is in the index."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import NotFound
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.segment import token_dtype
from suffolk.serving.live_store.batch import Appended, Batch
from suffolk.serving.live_store.clock import StoreClock
from suffolk.serving.live_store.contents import add, live_pages, ungrouped_tokens
from suffolk.serving.live_store.group_bound import displaced
from suffolk.serving.live_store.identity import StoreIdentity, log_folder
from suffolk.serving.live_store.log import Log
from suffolk.serving.live_store.record import Change, encode
from suffolk.serving.live_store.recovery import recover
from suffolk.serving.live_store.removed_text import RemovedText
from suffolk.serving.live_store.settings import LiveSettings

LOG = logging.getLogger(__name__)

CHECKPOINT_BYTES = 64 << 20
"""A log below this size is not rewritten."""
DOCUMENT_BYTES = 128
"""About the bytes of a document in the log, without its tokens."""


class LiveWriter:
    """The index and the log of one store, recovered from disk. Thread-safe.

    Args:
        manifest: the published generation; None if there is none.
    """

    def __init__(
        self, store: Path, identity: StoreIdentity, settings: LiveSettings, manifest: Manifest | None = None
    ) -> None:
        self._settings = settings
        self._token_bytes = token_dtype(identity.vocab_size).itemsize
        self._lock = threading.Lock()
        self._replacing = threading.Lock()  # held by what removes log files; taken before _lock
        state = recover(store, identity, settings.threads, manifest)
        self.index = state.index
        self.torn = state.log.torn
        self.removed_text = RemovedText()
        if state.holds_removed:
            self.removed_text.note_deleted()
        self.unpublished_tokens = state.ungrouped_tokens
        """Tokens of documents without a group that were appended since the last seal, including those removed meanwhile."""
        self._next = state.next_sequence
        self._clock = StoreClock(state.newest_time)
        if self._clock.behind:
            LOG.warning("%s: the clock is %.0f s behind the newest document", store, self._clock.behind)
        self.log = Log(log_folder(store), state.log, settings.durability, settings.interval)
        self._rewritten = 0  # size of the log after the last checkpoint

    @property
    def clock_behind(self) -> float:
        """See ``StoreClock.behind``."""
        return self._clock.behind

    @property
    def next_sequence(self) -> int:
        """The number of the next document."""
        return self._next

    def now(self) -> int:
        """The time that a document would get, in seconds."""
        return self._clock.now()

    def append(self, batch: Batch, replace: bool) -> Appended:
        """Append ``batch``; with ``replace``, remove all earlier documents of its groups in the same snapshot.

        Raises:
            ResourceExhausted: the disk is full, or memory is used up; nothing is changed.
            Unavailable: the store is closed, or its log failed.
        """
        count = len(batch.lengths)
        with self._lock:
            removed = displaced(self.index, batch, replace, self._settings.max_group_tokens)
            first = self._next
            sequences = np.arange(first, first + count, dtype=np.uint64)
            times = np.full(count, self._clock.now(), np.int64)
            change = Change(batch.tokens, batch.lengths, sequences, batch.keys, times, batch.origins, removed)
            position = self._apply(change)
            self._next = first + count
            self.unpublished_tokens += ungrouped_tokens(batch.lengths, batch.keys)
        if len(removed):
            self.removed_text.note_replaced()
        failpoint("append.visible")
        durable = self.log.acknowledge(position)
        return Appended(first, count, len(batch.tokens), len(removed), durable)

    def remove(self, sequences: Sequence[int]) -> bool:
        """Remove documents in memory; unknown ones are ignored. Returns whether the change is on disk.

        Raises:
            ResourceExhausted, Unavailable: as ``append``.
        """
        wanted = np.array(sorted(sequences), np.uint64)
        with self._lock:
            position = self.log.write(encode(Change(removed=wanted)), 0)
            try:
                self.index.remove(wanted)
            except NotFound:  # some were removed since the caller found them
                self.index.remove(self._present(wanted))
        self.removed_text.note_replaced()
        failpoint("remove.visible")
        return self.log.acknowledge(position)

    def drop_before(self, sequence: int) -> None:
        """Remove the documents in memory below ``sequence``. Whole segments are dropped; of the rest, documents are removed.

        Raises:
            ResourceExhausted, Unavailable: as ``append``.
        """
        with self._lock:
            record = encode(Change(drop_before=sequence))
            self.log.write(record, 0)
            self.index.drop_before(sequence)
            rest = [page.sequences for page in live_pages(self.index, sequence, tokens=False)]
            if rest:
                self.index.remove(np.concatenate(rest))
        self.removed_text.note_replaced()
        failpoint("evict.dropped")
        self.trim()

    def begin_seal(self) -> tuple[int, int]:
        """Begin a new log file. Returns the sequence up to which all documents are in older ones, and ``unpublished_tokens``."""
        with self._lock:
            self.log.rotate()
            return self._next - 1, self.unpublished_tokens

    def end_seal(self, tokens: int) -> None:
        """Note that ``tokens`` unpublished tokens are published, and remove log files whose documents are all gone."""
        with self._lock:
            self.unpublished_tokens -= tokens
        self.trim()

    def trim(self) -> None:
        """Remove log files whose documents are all gone."""
        if not self._replacing.acquire(blocking=False):
            return  # a checkpoint replaces these files; whatever it leaves, the next call removes
        try:
            end = self._next  # read first: what is appended from now on has a higher sequence
            self.log.trim(self.index.stats()["oldest_sequence"] or end)
        finally:
            self._replacing.release()

    def checkpoint(self, force: bool = False) -> bool:
        """Rewrite the log if most of it is about removed documents, or if their text must go. Returns whether it was rewritten.

        Raises:
            ResourceExhausted: the disk is full; the log stays.
        """
        if not (force or self.removed_text.is_due() or self._is_mostly_removed()):
            return False
        with self._replacing:
            self.removed_text.clear()
            try:
                with self._lock:
                    through, end = self.log.rotate(), self._next
                self.log.checkpoint(through, self._left(end), end - 1)
            except BaseException:
                self.removed_text.note_failure()
                raise
            self._rewritten = self.log.total_bytes
        return True

    def close(self) -> None:
        """Flush the log and release the index."""
        try:
            self.log.close()
        finally:
            self.index.close()

    def _apply(self, change: Change) -> int:
        """Log a change, then make it visible."""
        record = encode(change)
        position = self.log.write(record, int(change.sequences[-1]) if len(change.sequences) else 0)
        try:
            add(self.index, change)
        except BaseException:
            self.log.withdraw(record)
            raise
        return position

    def _is_mostly_removed(self) -> bool:
        stats = self.index.stats()
        live = stats["tokens"] * self._token_bytes + stats["documents"] * DOCUMENT_BYTES
        return self.log.total_bytes >= max(CHECKPOINT_BYTES + 2 * self._rewritten, 2 * live)

    def _left(self, end: int) -> Iterator[bytes]:
        """Records of the documents below ``end``, from which a reader also learns ``end``."""
        last = 0
        for page in live_pages(self.index, end):
            last = int(page.sequences[-1])
            yield encode(page)
        if last < end - 1:
            yield encode(Change(removed=np.array([end - 1], np.uint64)))

    def _present(self, sequences: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Those of ``sequences`` that are in memory."""
        pages = live_pages(self.index, int(sequences[-1]) + 1, tokens=False)
        return np.concatenate([np.empty(0, np.uint64), *(np.intersect1d(sequences, page.sequences) for page in pages)])
