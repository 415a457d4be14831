"""A live store with copies on other servers. One copy leads, and the other copies repeat its changes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from suffolk.datastore import _native
from suffolk.datastore.appendable import Appended, DocumentState, LiveDeletion
from suffolk.datastore.context_query import Groups, OccurrenceQuery
from suffolk.datastore.documents import Document, Occurrence
from suffolk.datastore.errors import NotFound, Unsupported
from suffolk.datastore.files import write_atomically
from suffolk.serving.store.live_store.contents import live_pages
from suffolk.serving.store.live_store.identity import LIVE_NAME, REPLICA_NAME, StoreIdentity, adopt_identity
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import LiveStore
from suffolk.serving.store.replication.feed import Feed
from suffolk.serving.store.replication.member import Member
from suffolk.serving.store.replication.messages import ReplicaStatus
from suffolk.serving.store.replication.register import Register

DEFAULT_MAX_LAG = 5.0


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Settings of a replica.

    Attributes:
        copies: copies that a change needs before it is acknowledged, this one included.
        max_lag: see ``Member``.
    """

    copies: int = 2
    max_lag: float | None = DEFAULT_MAX_LAG


class ReplicatedStore(LiveStore):
    """One copy of a live store. Thread-safe. See docs/design/replication.md.

    Attributes:
        member: its part in the decisions of all copies.
        waiting: context manager around the time in which a change waits for other copies.
    """

    waiting: Callable[[], AbstractContextManager[None]] = nullcontext

    def __init__(self, path: Path, settings: LiveSettings, register: Register, replicas: ReplicaSettings) -> None:
        """Raises Unsupported: the store has published files. Others as ``open_live_store``."""
        self.feed = Feed(path.name, replicas.copies)
        super().__init__(path, replace(settings, flush_tokens=0), self.feed)
        try:
            if self.generation:
                raise Unsupported(
                    f"{path} has published files, which have no copies elsewhere; serve it without --register"
                )
            self.member = Member(
                path.name,
                replica_id(path),
                partial(new_replica_id, path),
                self.writer,
                self.feed,
                register,
                replicas.max_lag,
                self._note_groups,
            )
        except BaseException:
            self.close()
            raise

    @property
    def problem(self) -> str:
        """Why the copy does not lead and does not follow; empty if it does one of the two."""
        return "" if self.feed.leads else self.member.problem

    def status(self) -> ReplicaStatus:
        """Its present state."""
        return self.member.status()

    def info(self) -> dict[str, Any]:
        """See ``LiveStore.info``; with ``replica``: ``status``, and the ``lag_seconds`` of a copy that does not lead."""
        status = self.status()
        lag = {} if status.leads else {"lag_seconds": round(self.member.lag_seconds(), 3)}
        return super().info() | {"replica": asdict(status) | lag}

    def native(self) -> _native.Searched:
        """See ``Retriever.native``. Raises Unavailable: see ``Member.require_fresh``."""
        self.member.require_fresh()
        return super().native()

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """See ``Retriever.occurrences``. Raises the errors of ``native``."""
        self.member.require_fresh()
        return super().find_occurrences(query)

    def get(self, id: str) -> DocumentState:
        """See ``LiveStore.get``. A leader answers when its copies have the changes that it has seen, so that these never vanish.

        Raises:
            Unavailable: see ``native``.
            DeadlineExceeded: a copy did not confirm the leader's changes in time.
        """
        self.member.require_fresh()
        with self._settled(self.feed.reign) if self.feed.leads else nullcontext():
            return super().get(id)

    def append_batch(
        self, documents: Sequence[Document], group: Groups = None, replace: bool = False, key: str | None = None
    ) -> Appended:
        """See ``LiveStore.append_batch``. It returns when all copies in sync have the documents, as durable as their settings
        say.

        Raises:
            Unavailable: the store does not lead, or has too few copies; nothing is changed.
            DeadlineExceeded: the copies did not confirm in time; the documents may stay or vanish.
        """
        reign = self.feed.require_copies()
        appended = super().append_batch(documents, group, replace, key)
        self._await_copies(appended.sequence + appended.documents, reign)
        return appended

    def delete(
        self, ids: Sequence[str] = (), where: Sequence[str] = (), group: str | None = None, dry_run: bool = False
    ) -> LiveDeletion:
        """See ``LiveStore.delete`` and ``append_batch``."""
        with self._settled(self.feed.require_copies()):
            return super().delete(ids, where, group, dry_run)

    def flush(self) -> int | None:
        """Raises Unsupported: published files would have no copies."""
        raise Unsupported(
            f"{self.name} has copies on other servers, and published files would have none; do not flush it"
        )

    def adopt(self, identity: StoreIdentity) -> None:
        """Take over the identity of the leader.

        Raises:
            Unsupported: the leader has another vocabulary or tokenizer, or this store holds documents of its own.
        """
        if identity != self.identity:
            self.identity = adopt_identity(self.path, self.identity, identity, not self._live.stats()["documents"])
            self.scrub()  # the log may hold removed documents under keys of groups that are now invalid

    def before_close(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the store is closed, before anything else."""
        self._resources.callback(call)

    @contextmanager
    def _settled(self, reign: int) -> Iterator[None]:
        """After the block, wait until the copies have all changes that the block made or saw, even if it found
        nothing."""
        try:
            yield
        except NotFound:
            self._await_copies(self.writer.next_sequence, reign)
            raise
        self._await_copies(self.writer.next_sequence, reign)

    def _await_copies(self, position: int, reign: int) -> None:
        if not self.feed.try_acknowledge(position, reign):
            with self.waiting():
                self.feed.await_copies(position, reign)

    def _note_groups(self) -> None:
        """Note all groups in the bounds, which do not see repeated changes. Only a leader evicts groups."""
        for page in live_pages(self._live, self.writer.next_sequence, grouped=True, tokens=False):
            self._bounds.add(page.groups.tolist())


def replica_id(store: Path) -> str:
    """The id of the replica in the folder ``store``. It is made there at the first call.

    Raises:
        ResourceExhausted, PermissionDenied: it cannot be written.
    """
    try:
        return str(json.loads((store / LIVE_NAME / REPLICA_NAME).read_bytes())["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # a damaged id counts as lost
        return new_replica_id(store)


def new_replica_id(store: Path) -> str:
    """Give the replica in the folder ``store`` another id. Raises the errors of ``replica_id``."""
    replica = secrets.token_hex(8)
    write_atomically(store / LIVE_NAME / REPLICA_NAME, json.dumps({"id": replica}).encode())
    return replica
