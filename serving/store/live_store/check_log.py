"""Checks the log of a live store, and counts what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from suffolk.datastore.errors import damaged
from suffolk.serving.store.live_store.contents import unpack_origin
from suffolk.serving.store.live_store.identity import StoreIdentity, log_folder, published, read_identity
from suffolk.serving.store.live_store.read_log import RecoveredLog, TornTail, read_shared_log
from suffolk.serving.store.live_store.record import Change
from suffolk.serving.store.live_store.recovery import replay


@dataclass(frozen=True, slots=True)
class LogReport:
    """The content of a log.

    Attributes:
        records: changes.
        documents, tokens: appended by the changes, including documents that were published or removed since.
        bytes: good bytes of all files.
        torn: the incomplete record at the end of the newest file, or None. A crash left it, or a process is writing it.
    """

    records: int
    documents: int
    tokens: int
    bytes: int
    torn: TornTail | None


def check_log(store: Path) -> LogReport:
    """Read the log of ``store``, and check each record: checksum, order, ids and origins. Another process may append meanwhile.

    Raises:
        Corruption: names the file and the place.
        Unsupported: a newer version wrote a file, or the published generation has another vocabulary or tokenizer.
    """
    identity = read_identity(store)
    if (manifest := published(store)) is not None:
        identity.require(manifest, store)
    log = read_shared_log(log_folder(store))
    _check_order(log)
    for file, changes in zip(log.files, log.changes_of, strict=True):
        for number, change in enumerate(changes):
            if problem := _problem(change, identity):
                raise damaged(file.path, f"record {number}: {problem}")
    changes = log.changes
    return LogReport(
        len(changes),
        sum(len(change.lengths) for change in changes),
        sum(len(change.tokens) for change in changes),
        sum(file.size for file in log.files),
        log.torn,
    )


def unpublished(store: Path) -> tuple[int, int]:
    """Count the documents that only a process with ``store`` open for appending can search, and their tokens.

    Raises:
        Corruption, Unsupported: the log cannot be read.
    """
    log = read_shared_log(log_folder(store))
    manifest = published(store)  # read last: what was published meanwhile is not counted
    left = list(replay(log.changes, manifest.live_sequence if manifest is not None else 0).batches)
    return sum(len(each.lengths) for each in left), sum(len(each.tokens) for each in left)


def _check_order(log: RecoveredLog) -> None:
    """Raises Corruption unless sequences rise over all files."""
    last = 0
    for file, changes in zip(log.files, log.changes_of, strict=True):
        for number, change in enumerate(changes):
            for before, after in pairwise([last, *change.sequences.tolist()]):
                if after <= before:
                    raise damaged(file.path, f"record {number}: document {after} follows document {before}")
            last = int(change.sequences[-1]) if len(change.sequences) else last


def _problem(change: Change, identity: StoreIdentity) -> str | None:
    """What is wrong with the documents of a record; None if nothing is."""
    if not change.lengths.all():
        return "a document has no tokens"
    if len(change.tokens) and (highest := int(change.tokens.max())) >= identity.vocab_size:
        return f"token id {highest} is out of range; the vocabulary has {identity.vocab_size} ids"
    for sequence, key, packed in zip(change.sequences.tolist(), change.groups.tolist(), change.origins, strict=True):
        try:
            group = unpack_origin(packed).group
            expected = 0 if group is None else identity.group_key(group)
        except (ValueError, TypeError, AttributeError):
            return f"the origin of document {sequence} is damaged"
        if key != expected:
            return f"document {sequence} is in another group than {group!r}"
    return None
