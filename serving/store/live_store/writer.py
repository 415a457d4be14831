"""Changes the documents in memory: each change is in the log before it is in the index."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffolk.datastore.appendable import Appended
from suffolk.datastore.errors import NotFound
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.segment import token_dtype
from suffolk.serving.store.live_store.batch import AppendBatch, AppendKeys, displaced
from suffolk.serving.store.live_store.contents import add, live_pages, ungrouped_tokens
from suffolk.serving.store.live_store.identity import StoreIdentity, log_folder
from suffolk.serving.store.live_store.log import Log
from suffolk.serving.store.live_store.record import FORGET, Change, ChangeFeed, KeyedAppend, Record, encode_body
from suffolk.serving.store.live_store.recovery import recover
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.times import RemovedText, StoreClock

LOG = logging.getLogger(__name__)

CHECKPOINT_BYTES = 64 << 20
"""A log below this size is not rewritten."""
DOCUMENT_BYTES = 128
"""Approximate bytes of a document in the log, without its tokens."""


class LiveWriter:
    """The index and the log of one store, recovered from disk. Thread-safe.

    Every change takes numbers (sequences): one for each of its documents, or one number if it has no documents.

    Args:
        manifest: the published generation; None if there is none.
        feed: takes the changes if the store has copies.
    """

    def __init__(
        self,
        store: Path,
        identity: StoreIdentity,
        settings: LiveSettings,
        manifest: Manifest | None = None,
        feed: ChangeFeed | None = None,
    ) -> None:
        self._settings = settings
        self._feed = feed
        self.dtype = token_dtype(identity.vocab_size)
        """The type of token ids in the log."""
        self._lock = threading.Lock()
        self._replacing = threading.Lock()  # held while log files are removed; taken before _lock
        state = recover(store, identity, settings.threads, manifest)
        self.index = state.index
        self.torn = state.log.torn
        self.removed_text = RemovedText()
        if state.holds_removed:
            self.removed_text.note_deleted()
        self.unpublished_tokens = state.ungrouped_tokens
        """Tokens of documents without a group that were appended since the last flush, including documents removed
        meanwhile."""
        self.keys = AppendKeys(key for change in state.log.changes for key in change.keys)
        """Keys of recent appends, guarded by ``_lock``."""
        self.next_sequence = state.next_sequence
        """The number of the next document or change."""
        self._newest_time = state.newest_time
        self.clock = StoreClock(state.newest_time)
        """The time that documents get."""
        if self.clock.behind:
            LOG.warning("%s: the clock is %.0f s behind the newest document", store, self.clock.behind)
        self.log = Log(log_folder(store), state.log, settings.durability, settings.interval)
        self._rewritten = 0  # size of the log after the last checkpoint
        if feed is not None:
            for page in live_pages(self.index, self.next_sequence):
                feed.load(page)

    @property
    def repeats(self) -> bool:
        """Whether the store repeats another store's changes, and makes no changes of its own."""
        return self._feed is not None and not self._feed.leads

    def append(self, batch: AppendBatch, replaces: bool, key: bytes | None = None) -> Appended:
        """Append ``batch``. With ``replaces``, all earlier documents of its groups are removed at the same moment.

        An append with the ``key`` of an earlier append changes nothing, and has the same outcome.

        Raises:
            InvalidArgument: the earlier append with this key was different.
            ResourceExhausted: the disk is full, or memory is used up; nothing is changed.
            Unavailable: the store is closed, or its log failed.
        """
        count = len(batch.lengths)
        with self._lock:
            self._require_lead()
            made = None if key is None else self.keys.find(key, count, len(batch.tokens))
            if made is None:
                made = self._append(batch, replaces, key)
        if made.replaced:
            self.removed_text.note_replaced()
        failpoint("append.visible")
        durable = self.log.acknowledge()
        return Appended(made.sequence, made.documents, made.tokens, made.replaced, durable)

    def remove(self, sequences: Sequence[int]) -> None:
        """Remove documents in memory; unknown numbers are ignored.

        Raises:
            ResourceExhausted, Unavailable: as ``append``.
        """
        wanted = np.array(sorted(sequences), np.uint64)
        with self._lock:
            self._require_lead()
            position = self._make(Change(removed=np.append(wanted, self._own_number())))
        self.removed_text.note_replaced()
        failpoint("remove.visible")
        self.log.acknowledge(position)

    def drop_before(self, sequence: int) -> None:
        """Remove the documents in memory below ``sequence``. Whole segments are dropped. From other segments, single
        documents are removed.

        Raises:
            ResourceExhausted, Unavailable: as ``append``.
        """
        with self._lock:
            self._require_lead()
            self._make(Change(removed=self._own_number(), drop_before=sequence))
        self.removed_text.note_replaced()
        failpoint("evict.dropped")
        self.trim()

    def repeat(self, record: Record) -> int:
        """Repeat a change of the leading store, with the same numbers. Returns the position to acknowledge.

        Raises:
            ResourceExhausted, Unavailable: as ``append``.
        """
        change = record.change
        with self._lock:
            removes = bool(len(change.removed)) and int(change.removed[0]) < self.next_sequence
            position = self._make(change, bytes(record.body))
        if removes and not len(change.lengths):
            self.removed_text.note_deleted()
        elif removes or change.drop_before:
            self.removed_text.note_replaced()
        if change.drop_before:
            self.trim()
        return position

    def clear(self) -> None:
        """Forget all documents, in memory and in the log, and begin with number 1 again.

        Raises:
            ResourceExhausted: the disk is full; nothing is changed.
        """
        with self._replacing, self._lock:
            self.log.checkpoint(self.log.rotate(), (), 0)
            self.index.clear()
            self.next_sequence = 1
            self.keys = AppendKeys()
            self.unpublished_tokens = 0
            if self._feed is not None:
                self._feed.clear()

    def begin_at(self, sequence: int) -> None:
        """Lead from now on. The next change has at least number ``sequence``. Its time is not before the time of an earlier
        change."""
        with self._lock:
            self.next_sequence = max(self.next_sequence, sequence)
            self.clock.set(max(self._newest_time, self.clock.now()))

    @contextmanager
    def paused(self) -> Iterator[int]:
        """Prevent changes during the block, which gets ``next_sequence``."""
        with self._lock:
            yield self.next_sequence

    def begin_flush(self) -> tuple[int, int]:
        """Begin a new log file. Returns the sequence up to which all documents are in older files, and
        ``unpublished_tokens``."""
        with self._lock:
            self.log.rotate()
            return self.next_sequence - 1, self.unpublished_tokens

    def end_flush(self, tokens: int) -> None:
        """Note that ``tokens`` unpublished tokens are published, and remove log files whose documents are all gone."""
        with self._lock:
            self.unpublished_tokens -= tokens
        self.trim()

    def trim(self) -> None:
        """Remove log files whose documents are all gone."""
        if not self._replacing.acquire(blocking=False):
            return  # a checkpoint replaces these files; the next call removes any that are left
        try:
            end = self.next_sequence  # read first: what is appended from now on has a higher sequence
            self.log.trim(self.index.stats()["oldest_sequence"] or end)
        finally:
            self._replacing.release()

    def checkpoint(self, force: bool = False) -> bool:
        """Rewrite the log if it mostly holds removed documents, or if their text must go. Returns whether it was rewritten.

        Raises:
            ResourceExhausted: the disk is full; the log stays.
        """
        if not (force or self.removed_text.is_due() or self._is_mostly_removed()):
            return False
        with self._replacing:
            self.removed_text.clear()
            try:
                with self._lock:
                    through, end, keys = self.log.rotate(), self.next_sequence, self.keys.all()
                self.log.checkpoint(through, self._left(end, keys), end - 1)
            except BaseException:
                self.removed_text.note_failure()
                raise
            self._rewritten = self.log.total_bytes
        return True

    def close(self) -> None:
        """Sync the log and release the index."""
        try:
            self.log.close()
        finally:
            self.index.close()

    def _append(self, batch: AppendBatch, replaces: bool, key: bytes | None) -> KeyedAppend:
        """Log an append and make it visible. REQUIRES: ``_lock`` is held."""
        removed = displaced(self.index, batch, replaces, self._settings.max_group_tokens)
        count, first, now = len(batch.lengths), self.next_sequence, self.clock.now()
        sequences = np.arange(first, first + count, dtype=np.uint64)
        made = KeyedAppend(key or FORGET, first, count, len(batch.tokens), len(removed), now)
        keys = [made] if key else []
        times = np.full(count, now, np.int64)
        self._make(Change(batch.tokens, batch.lengths, sequences, batch.keys, times, batch.origins, removed, keys=keys))
        return made

    def _require_lead(self) -> None:
        if self._feed is not None:
            self._feed.require_lead()

    def _make(self, change: Change, body: bytes | None = None) -> int:
        """Log a change, make it visible, and pass it on. Returns the position to acknowledge. REQUIRES: ``_lock`` is held.

        ``body``: body of the change's record, if known.
        """
        body = encode_body(change) if body is None else body
        last = int(change.sequences[-1]) if len(change.sequences) else 0
        position = self.log.write(body, last)
        try:
            self._show(change)
        except BaseException:
            self.log.withdraw(body)
            raise
        self.next_sequence = max(self.next_sequence, last + 1, int(change.removed.max(initial=0)) + 1)
        self._newest_time = max(self._newest_time, int(change.times.max(initial=0)))
        self.unpublished_tokens += ungrouped_tokens(change.lengths, change.groups)
        self.keys.add(change.keys)
        if self._feed is not None:
            self._feed.publish(change, body, self.next_sequence)
        return position

    def _own_number(self) -> npt.NDArray[np.uint64]:
        """The number of a change without documents. The record names this number as removed, so that a reader of the log sees
        it."""
        return np.array([self.next_sequence], np.uint64)

    def _show(self, change: Change) -> None:
        """Change the index. Some documents to remove may be gone already."""
        removed = change.removed[change.removed < self.next_sequence]  # without the change's own number
        if change.drop_before:
            self.index.drop_before(change.drop_before)
            rest = [page.sequences for page in live_pages(self.index, change.drop_before, tokens=False)]
            removed = np.unique(np.concatenate([removed, *rest]))
        change = replace(change, removed=removed)
        try:
            self._add_or_remove(change)
        except NotFound:
            self._add_or_remove(replace(change, removed=self._present(removed)))

    def _add_or_remove(self, change: Change) -> None:
        if len(change.lengths):
            add(self.index, change)
        elif len(change.removed):
            self.index.remove(change.removed)

    def _is_mostly_removed(self) -> bool:
        stats = self.index.stats()
        live = stats["tokens"] * self.dtype.itemsize + stats["documents"] * DOCUMENT_BYTES
        return self.log.total_bytes >= max(CHECKPOINT_BYTES + 2 * self._rewritten, 2 * live)

    def _left(self, end: int, keys: Sequence[KeyedAppend]) -> Iterator[bytes]:
        """Bodies of records that hold the documents below ``end``. A reader of the records also learns ``end``."""
        last = 0
        for page in live_pages(self.index, end):
            last = int(page.sequences[-1])
            yield encode_body(replace(page, tokens=page.tokens.astype(self.dtype)))
        yield encode_body(Change(removed=np.array([end - 1] if last < end - 1 else [], np.uint64), keys=keys))

    def _present(self, sequences: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The ``sequences`` that are in memory."""
        pages = live_pages(self.index, int(sequences[-1]) + 1, tokens=False)
        return np.concatenate([np.empty(0, np.uint64), *(np.intersect1d(sequences, page.sequences) for page in pages)])
