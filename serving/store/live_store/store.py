"""A datastore that is appended to while it is searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from suffolk.build_index.delete import delete as delete_published
from suffolk.datastore.appendable import Appendable, Appended, DocumentState, GroupStats, LiveDeletion, LiveStats
from suffolk.datastore.arguments import check_flag
from suffolk.datastore.context_query import Groups
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import Field, InvalidArgument, NotFound
from suffolk.datastore.files import require_place_here
from suffolk.datastore.generation_follower import GenerationFollower
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.periodic_thread import PeriodicThread
from suffolk.datastore.query import parse_query
from suffolk.serving.store.live_store.batch import hash_key, make_batch
from suffolk.serving.store.live_store.bounds import Bounds
from suffolk.serving.store.live_store.contents import live_pages, select, unpack_origin
from suffolk.serving.store.live_store.identity import (
    append_lock,
    create_identity,
    open_identity,
    published,
    refuse_replica,
)
from suffolk.serving.store.live_store.maintenance import KEEP_SECONDS, Maintenance
from suffolk.serving.store.live_store.published_files import PublishedFiles
from suffolk.serving.store.live_store.queries import LiveQueries
from suffolk.serving.store.live_store.record import ChangeFeed
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.writer import LiveWriter

DEFAULT_SETTINGS = LiveSettings()


def open_live_store(path: str | Path, settings: LiveSettings = DEFAULT_SETTINGS) -> LiveStore:
    """Open the datastore at ``path`` for appending. Documents that are not published yet are read from its log.

    Raises:
        NotFound: there is neither a datastore nor a live store.
        Corruption: a file is damaged or missing.
        Unsupported: a newer version wrote a file, or the published generation has another vocabulary or tokenizer.
        Unavailable: another process has the datastore open for appending.
        InvalidArgument: the datastore is a copy of a store on other servers.
    """
    refuse_replica(Path(path))
    return LiveStore(Path(path), settings)


def create_live_store(
    path: str | Path,
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    order_depth: int = 64,
    settings: LiveSettings = DEFAULT_SETTINGS,
) -> LiveStore:
    """Make an empty store in the new folder ``path``, and open it for appending.

    Args:
        tokenizer: a Hugging Face folder, a tokenizer.json or a hub name; None: only token ids can be appended.
        vocab_size: number of ids; needed without a tokenizer.
        order_depth: tokens by which suffixes are sorted; ``max_match + max_depth`` of a query must not exceed it.

    Raises:
        InvalidArgument: the folder exists, or a value is out of its bounds.
        NotFound, Corruption: the tokenizer cannot be read.
    """
    require_place_here(path, "path")
    create_identity(Path(path), tokenizer, vocab_size, order_depth)
    return LiveStore(Path(path), settings)


class LiveStore(LiveQueries, Appendable):
    """A published generation and the documents appended since, searched together. Thread-safe.

    A query sees all of an append or nothing of it. Counts are exact: they include no removed document. Only one process at a time
    can open a store for appending. Other processes can open its published generation.

    A group is a name for documents that belong together: a prompt, a user, a repository. Its documents stay in memory and in the
    log. Documents without a group are published as segment files by ``flush``.

    Attributes:
        writer: the index and the log.
        maintenance, maintenance_thread: what is done in the background, and the thread that does it.
    """

    def __init__(self, path: Path, settings: LiveSettings = DEFAULT_SETTINGS, feed: ChangeFeed | None = None) -> None:
        self.path = path
        self.settings = settings
        self.identity = open_identity(path)
        with ExitStack() as stack:
            stack.enter_context(append_lock(path))
            self.writer = LiveWriter(path, self.identity, settings, published(path), feed)
            stack.callback(self.writer.close)
            self._live = self.writer.index
            self._files = PublishedFiles(path, self.identity, settings, self.writer)
            self.refresh()
            self._bounds = Bounds(self.writer, settings)
            self.maintenance = Maintenance(self.writer, self._files, self._bounds, settings)
            self.maintenance_thread = PeriodicThread(f"maintenance-{path.name}", self.maintenance.round, KEEP_SECONDS)
            stack.callback(self.maintenance_thread.close)
            self._follower = GenerationFollower(path, lambda: self.generation, self._follow)
            stack.callback(self._follower.close)
            self._resources = stack.pop_all()

    def append_batch(
        self, documents: Sequence[Document], group: Groups = None, replace: bool = False, key: str | None = None
    ) -> Appended:
        """Append several documents: all or nothing, and all visible together. The arguments and errors are those of ``append``.

        Args:
            group: a group for all documents, or a sequence with a group or None for each.
        """
        check_flag("replace", replace)
        batch = make_batch(documents, group, self.identity, self.settings)
        keys = set(batch.keys.tolist())
        if replace and 0 in keys:
            raise InvalidArgument(
                Field("replace"), " is given for a document without a group; name the group whose content it replaces"
            )
        hashed = None if key is None else hash_key(key, self.identity.group_secret)
        appended = self.writer.append(batch, replace, hashed)
        self._bounds.add(keys)
        if self.maintenance.is_due():
            self.maintenance_thread.wake()
        return appended

    def delete(
        self,
        ids: Sequence[str] = (),
        where: Sequence[str] = (),
        group: str | None = None,
        dry_run: bool = False,
    ) -> LiveDeletion:
        """Delete the documents whose source is in ``ids`` and that meet all conditions of ``where``, or a whole group.

        No query that begins afterwards finds them. Documents in published files are deleted by publishing a generation. A deletion
        waits while a flush runs. The text leaves the log within about a minute, and segment files with ``suffolk compact``.

        Args:
            ids, where: see ``suffolk.build_index.delete``.
            group: the group to delete; excludes ``ids`` and ``where``.
            dry_run: count the documents, but delete none.

        Raises:
            InvalidArgument: nothing is given, a condition cannot be parsed, or no document has the field of a condition.
            NotFound: the group has no documents.
            ResourceExhausted, Unavailable: see ``append``; another process may be writing to the datastore.
        """
        if group is not None:
            if ids or where:
                raise InvalidArgument(Field("group"), " is given with ids or where; give one of them")
            return self._delete_group(group, dry_run)
        query = parse_query(ids, where)
        with self._files.lock:
            self._files.take_up()
            found = select(self._live, self.writer.next_sequence, query)
            documents = tokens = 0
            sources = set(found.sources)
            if self._files.datastore is not None:
                report = delete_published(self.path, ids, where, dry_run, self.settings.threads, found.fields)
                documents, tokens = report.documents, report.tokens
                sources |= set(ids) - set(report.unknown_ids)
                self._files.take_up()
            else:
                query.require_fields(found.fields)
            if found.sequences and not dry_run:
                self.writer.remove(found.sequences)
                self.writer.removed_text.note_deleted()
            return LiveDeletion(
                documents + len(found.sequences),
                tokens + found.tokens,
                self.generation,
                tuple(sorted(each for each in set(ids) if each not in sources)),
            )

    def get(self, id: str) -> DocumentState:
        """The state of the documents with this id.

        Raises:
            NotFound: there are no such documents.
        """
        query = parse_query([id], ())
        with self._files.lock:
            found = select(self._live, self.writer.next_sequence, query)
            documents, tokens = len(found.sequences), found.tokens
            if self._files.datastore is not None:
                report = delete_published(self.path, [id], (), True, self.settings.threads, found.fields)
                documents, tokens = documents + report.documents, tokens + report.tokens
        if not documents:
            raise NotFound(f"datastore {self.name} has no document with the id {id!r}")
        return DocumentState(documents, tokens, max(found.sequences, default=0))

    def flush(self) -> int | None:
        """Publish the documents in memory that have no group. Returns the new generation, or None if there are none.

        Queries and appends go on. The log of the published documents is removed.

        Raises:
            Unavailable: another process writes to the datastore, or an interrupted build is in it.
            ResourceExhausted: the disk is full; nothing is changed.
        """
        with self._files.lock:
            return self._files.flush()

    def scrub(self) -> None:
        """Rewrite the log now, without the text of removed documents. Without this call, a thread does so within the time that
        ``removed_text`` states.

        Raises:
            ResourceExhausted: the disk is full; the log stays.
        """
        self.writer.checkpoint(force=True)

    def refresh(self) -> bool:
        """Take up the published generation if it is new, and return whether it is. Queries that run keep the old one.

        A thread does so within a second anyway.

        Raises:
            Corruption, Unsupported: the new generation cannot be used; the old one stays.
        """
        with self._files.lock:
            return self._files.take_up()

    @property
    def problem(self) -> str:
        """Why the published generation is not served; empty if it is."""
        return self._follower.problem

    @property
    def generation(self) -> int:
        """Number of the published generation; 0 if there is none."""
        return self._files.generation

    def documents(self) -> Iterator[Document]:
        """Yield every document: the published documents in order, then the documents in memory, oldest first.

        Documents that are flushed meanwhile may be missing. ``suffolk snapshot`` copies one state.
        """
        if self._files.datastore is not None:
            yield from self._files.datastore.documents()
        for page in live_pages(self._live, self.writer.next_sequence):
            for origin, tokens in zip(map(unpack_origin, page.origins), page.texts(), strict=True):
                yield Document(origin.source, origin.metadata, tokens.astype(np.uint32))

    def info(self) -> dict[str, Any]:
        """Facts of the published generation (``Datastore.info``). The entry ``live`` has the result of ``stats``."""
        stats = self.stats()
        files = self._files.datastore
        facts = files.info() if files is not None else {"segments": [], "bytes": 0, "generation": 0}
        return facts | {
            "path": str(self.path),
            "tokens": stats.tokens + stats.published_tokens,
            "documents": stats.documents + stats.published_documents,
            "vocab_size": self.identity.vocab_size,
            "order_depth": self.identity.order_depth,
            "tokenizer": self.identity.tokenizer,
            "live": asdict(stats),
        }

    def stats(self) -> LiveStats:
        """The state of the store, in constant time."""
        index, log = self._live.stats(), self.writer.log
        published_tokens, published_documents = self._files.size()
        return LiveStats(
            generation=self.generation,
            tokens=index["tokens"],
            documents=index["documents"],
            bytes=index["bytes"],
            published_tokens=published_tokens,
            published_documents=published_documents,
            segments=index["segments"],
            deletions=index["deletions"],
            merge_debt_tokens=index["merge_debt"],
            merged_tokens=index["merged_tokens"],
            next_sequence=self.writer.next_sequence,
            flushed_sequence=self._files.live_sequence,
            oldest_time=index["oldest_time"],
            log_bytes=log.total_bytes,
            log_files=log.file_count,
            unsynced_bytes=log.unsynced_bytes,
            torn_bytes=self.writer.torn.bytes if self.writer.torn is not None else 0,
            evicted_documents=self._bounds.evicted_documents,
            evicted_tokens=self._bounds.evicted_tokens,
            clock_behind_seconds=self.writer.clock.behind,
            log_failure=self._without_path(log.failure),
            background_error=self._without_path(self.maintenance.error),
        )

    def group_stats(self, group: str) -> GroupStats:
        """Documents and tokens of ``group``.

        Raises:
            NotFound: the group has no documents.
        """
        stats = self._live.group_stats(self._key(group))
        if not stats["documents"]:
            raise NotFound(f"datastore {self.name}: group {group!r} has no documents; append some, or check the name")
        return GroupStats(stats["documents"], stats["tokens"])

    def close(self) -> None:
        """Sync the log, and release the index, the files and the lock. Later calls raise Unavailable."""
        self._resources.close()
        self._files.datastore = None

    def _without_path(self, reason: str | None) -> str | None:
        """``reason`` with the store's name in place of its path: remote readers must not see the path."""
        return reason and reason.replace(str(self.path), self.name)

    def _delete_group(self, group: str, dry_run: bool) -> LiveDeletion:
        self.group_stats(group)
        sequences, lengths = self._live.group_documents(self._key(group))
        if not dry_run:
            self.writer.remove(sequences.tolist())
            self.writer.removed_text.note_deleted()
        return LiveDeletion(len(sequences), int(lengths.sum()), self.generation, ())

    def _follow(self, manifest: Manifest) -> bool:
        """Take up a generation that another process published. See ``GenerationFollower``."""
        self.refresh()
        return True
