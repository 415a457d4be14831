"""Opens what is on disk: the index of the documents that a log leaves."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore import _native
from suffolk.datastore.manifest import Manifest
from suffolk.serving.store.live_store.contents import add, ungrouped_tokens
from suffolk.serving.store.live_store.identity import StoreIdentity, log_folder
from suffolk.serving.store.live_store.publish import live_segments
from suffolk.serving.store.live_store.read_log import RecoveredLog, read_log
from suffolk.serving.store.live_store.replay import replay

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a store when it is opened.

    Attributes:
        index: the documents that are not published, and those of groups.
        log: what was read.
        next_sequence: higher than each sequence that was given out.
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
    published = [time for _, time in live_segments(manifest)] if manifest is not None else []
    written = sum(len(change.lengths) for change in changes)
    return Recovered(index, log, state.next_sequence, max(state.newest_time, *published, 0), ungrouped, left < written)
