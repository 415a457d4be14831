"""Reads a store from disk: the documents that its log leaves, in batches, and their index."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.manifest import Manifest
from suffolk.serving.store.live_store.contents import add, ungrouped_tokens
from suffolk.serving.store.live_store.identity import StoreIdentity, log_folder
from suffolk.serving.store.live_store.publish import live_segments
from suffolk.serving.store.live_store.read_log import RecoveredLog, read_log
from suffolk.serving.store.live_store.record import Change

LOG = logging.getLogger(__name__)
BATCH_TOKENS = 16 << 20
"""Tokens that are sorted together."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a store when it is opened.

    Attributes:
        index: the documents that are not published, and all documents of groups.
        log: the log that was read.
        next_sequence: higher than each sequence that a document or change ever had.
        newest_time: the highest time of a document, published or not; 0 if there is none.
        ungrouped_tokens: tokens in ``index`` of documents without a group.
        holds_removed: whether the log holds documents that are removed, or published.
    """

    index: _native.LiveIndex
    log: RecoveredLog
    next_sequence: int
    newest_time: int
    ungrouped_tokens: int
    holds_removed: bool


def recover(store: Path, identity: StoreIdentity, threads: int, manifest: Manifest | None) -> Recovered:
    """Read the log of ``store``, and sort the documents that it leaves. Nothing is written.

    Args:
        manifest: the published generation; None if there is none.

    Raises:
        Corruption, Unsupported: as ``read_log``.
    """
    log = read_log(log_folder(store))
    if log.torn is not None:
        LOG.warning(
            "%s: cut off %s bytes at %s, which hold no whole change", log.torn.path, log.torn.bytes, log.torn.offset
        )
    index = _native.LiveIndex(identity.vocab_size, identity.order_depth, threads)
    changes = log.changes
    state = replay(changes, manifest.live_sequence if manifest is not None else 0)
    left = ungrouped = 0
    for batch in state.batches:
        if len(batch.lengths):
            add(index, batch)
        left += len(batch.lengths)
        ungrouped += ungrouped_tokens(batch.lengths, batch.groups)
    published = [time for _, time in live_segments(manifest)]
    written = sum(len(change.lengths) for change in changes)
    return Recovered(index, log, state.next_sequence, max(state.newest_time, *published, 0), ungrouped, left < written)


@dataclass(frozen=True, slots=True)
class Replay:
    """The documents that a log leaves.

    Attributes:
        batches: the documents that are left, in order of their sequences. A batch may be empty.
        next_sequence: higher than each sequence in the log.
        newest_time: the highest time of a document.
    """

    batches: Iterator[Change]
    next_sequence: int
    newest_time: int


def replay(changes: Sequence[Change], flushed_through: int) -> Replay:
    """Apply ``changes`` to an empty store.

    Args:
        flushed_through: documents without a group up to this sequence are in published files, and are left out.
    """
    removed = np.unique(_join([change.removed for change in changes], np.uint64))
    dropped = max((change.drop_before for change in changes), default=0)
    highest = [flushed_through + 1, dropped, *(int(removed[-1]) + 1 for _ in removed[-1:])]
    highest += [int(change.sequences[-1]) + 1 for change in changes if len(change.sequences)]
    times = [int(change.times.max()) for change in changes if len(change.times)]
    return Replay(_batches(changes, removed, dropped, flushed_through), max(highest), max(times, default=0))


def _batches(
    changes: Sequence[Change], removed: npt.NDArray[np.uint64], dropped: int, flushed_through: int
) -> Iterator[Change]:
    pending: list[Change] = []
    size = 0
    for change in changes:
        if pending and size + len(change.tokens) > BATCH_TOKENS:
            yield _left(_joined(pending), removed, dropped, flushed_through)
            pending, size = [], 0
        pending.append(change)
        size += len(change.tokens)
    if pending:
        yield _left(_joined(pending), removed, dropped, flushed_through)


def _left(change: Change, removed: npt.NDArray[np.uint64], dropped: int, flushed_through: int) -> Change:
    """The documents of ``change`` that are not removed, dropped or published."""
    sequences = change.sequences
    kept = (sequences >= dropped) & ((change.groups != 0) | (sequences > flushed_through))
    if len(removed):
        places = np.minimum(np.searchsorted(removed, sequences), len(removed) - 1)
        kept &= removed[places] != sequences
    return change if kept.all() else change.of(kept)


def _joined(changes: Sequence[Change]) -> Change:
    return Change(
        _join([change.tokens for change in changes], changes[0].tokens.dtype),
        _join([change.lengths for change in changes], np.uint32),
        _join([change.sequences for change in changes], np.uint64),
        _join([change.groups for change in changes], np.uint64),
        _join([change.times for change in changes], np.int64),
        [origin for change in changes for origin in change.origins],
    )


def _join(arrays: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *arrays])
