"""A live store with copies on other servers. One of them leads; the others repeat its changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from suffolk.datastore.context_query import Groups
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import Unavailable, Unsupported
from suffolk.datastore.segment import token_dtype
from suffolk.serving.live_store.batch import Appended
from suffolk.serving.live_store.contents import live_pages
from suffolk.serving.live_store.identity import StoreIdentity, adopt_identity
from suffolk.serving.live_store.record import Change, encode
from suffolk.serving.live_store.settings import LiveSettings
from suffolk.serving.live_store.stats import LiveDeletion
from suffolk.serving.live_store.store import LiveStore
from suffolk.serving.replication.feed import Feed, Subscription
from suffolk.serving.replication.lag import Lag
from suffolk.serving.replication.missing_changes import Runs, held_runs, missing_changes, out_of_order
from suffolk.serving.replication.replica_state import EPOCH_NUMBERS, ReplicaState, read_state, write_state


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """What a replica is and has. ``info()["replica"]`` holds it.

    Attributes:
        epoch, leads, data_epoch: see ``ReplicaState``.
        position: it has all changes below this number that the leader of ``data_epoch`` had.
        copies: copies that a change needs.
        followers: of a leader: followers that are in step.
    """

    epoch: int
    leads: bool
    data_epoch: int
    position: int
    copies: int
    followers: int

    @property
    def claim(self) -> tuple[int, int]:
        """Of two replicas, the one with the higher claim has all acknowledged changes of the other."""
        return self.data_epoch, self.position


class ReplicaStore(LiveStore):
    """One copy of a live store. Thread-safe. See docs/design/replication.md.

    Args:
        copies: copies that a change needs before it is acknowledged, this one included.

    Attributes:
        lag: behind the leader; of no meaning while this one leads.
        follow_problem: why it follows no leader; empty if it does, or leads.
    """

    def __init__(self, path: Path, settings: LiveSettings, copies: int = 2) -> None:
        """Raises Unsupported: the store has published files. Others as ``open_live_store``."""
        self.feed = Feed(path.name, copies)
        self.lag = Lag()
        self.follow_problem = ""
        super().__init__(path, replace(settings, flush_tokens=0), self.feed)
        self._role = threading.RLock()  # held by what changes the state, and by what repeats changes
        try:
            if self.generation:
                raise Unsupported(
                    f"{path} has published files, which have no copies elsewhere; serve it without --peer"
                )
            self._state = read_state(path)
        except BaseException:
            self.close()
            raise
        if self._state.leads:
            self._begin()

    @property
    def problem(self) -> str:
        """Why it follows no leader; empty if it does, or leads."""
        return "" if self.feed.leads else self.follow_problem

    @property
    def state(self) -> ReplicaState:
        """The state on disk."""
        return self._state

    def status(self) -> ReplicaStatus:
        """What it is and has now."""
        with self._role:
            state = self._state
            below = self._writer.next_sequence if state.complete_below is None else state.complete_below
            return ReplicaStatus(
                state.epoch, state.leads, state.data_epoch, below, self.feed.copies, self.feed.followers()
            )

    def info(self) -> dict[str, Any]:
        """See ``LiveStore.info``; with ``replica``: ``status``, and the ``lag_seconds`` of a copy that does not lead."""
        status = self.status()
        lag = {} if status.leads else {"lag_seconds": round(self.lag.seconds(), 3)}
        return super().info() | {"replica": asdict(status) | lag}

    def append_batch(self, documents: Sequence[Document], group: Groups = None, replace: bool = False) -> Appended:
        """See ``LiveStore.append_batch``. It returns when ``copies`` copies have the documents, as durable as their settings say.

        Raises:
            Unavailable: the store does not lead, or has too few copies; nothing is changed.
            DeadlineExceeded: too few copies confirmed in time; the documents may stay or vanish.
        """
        self.feed.require_copies()
        appended = super().append_batch(documents, group, replace)
        self.feed.await_copies(appended.sequence + appended.documents)
        return appended

    def delete(
        self, ids: Sequence[str] = (), where: Sequence[str] = (), group: str | None = None, dry_run: bool = False
    ) -> LiveDeletion:
        """See ``LiveStore.delete`` and ``append_batch``."""
        self.feed.require_copies()
        deleted = super().delete(ids, where, group, dry_run)
        self.feed.await_copies(self._writer.next_sequence)
        return deleted

    def seal(self) -> int | None:
        """Raises Unsupported: published files would have no copies."""
        raise Unsupported(
            f"{self.name} has copies on other servers, and published files would have none; do not seal it"
        )

    def fence(self, epoch: int) -> ReplicaStatus:
        """Stop leading and following in all epochs before ``epoch``.

        Raises:
            Unavailable: it has seen this epoch, or a later one.
        """
        with self._role:
            if epoch <= self._state.epoch:
                raise Unavailable(
                    f"{self.name} is in epoch {self._state.epoch} already; choose a later one than {epoch}"
                )
            self._stop_leading(f"{self.name} has no leader in epoch {epoch} yet; repeat 'suffolk promote'")
            self._keep(self._state.fenced(epoch))
            return self.status()

    def lead(self, epoch: int) -> ReplicaStatus:
        """Lead in ``epoch``, for which it was fenced.

        Raises:
            Unavailable: it was not, or a later epoch has begun.
        """
        with self._role:
            if epoch != self._state.epoch:
                raise Unavailable(f"{self.name} is in epoch {self._state.epoch}, not {epoch}; repeat 'suffolk promote'")
            if not self._state.leads:
                self._keep(self._state.leading())
                self._begin()
            return self.status()

    @contextmanager
    def followed(
        self, follower: str, epoch: int, held: Runs, position: int
    ) -> Iterator[tuple[Subscription, Iterator[bytes]]]:
        """A subscription to all changes from now on, and the records that a follower with ``held`` lacks until now.

        An earlier leader may have removed documents without telling another copy. When it follows, it lacks these documents. They
        get new numbers, because it has later numbers already.

        Args:
            epoch: the follower's. A later one than this store's means that another store leads.
            position: the follower's next number.

        Raises:
            Unavailable: the store does not lead, or leads in an earlier epoch.
        """
        self.feed.require_lead()
        if len(early := out_of_order(self._live, held, position)):
            self._writer.renumber(early)
        with ExitStack() as stack:
            with self._writer.paused() as position:
                self.feed.require_lead()
                if epoch > self._state.epoch:
                    raise Unavailable(
                        f"{self.name} leads in epoch {self._state.epoch}, and its follower is in {epoch} already"
                    )
                subscription = stack.enter_context(self.feed.subscribed(follower, position))
            missing = missing_changes(self._live, position, held, token_dtype(self.vocab_size))
            yield subscription, map(encode, missing)

    def held(self) -> tuple[Runs, int]:
        """The documents that it has, and its next number."""
        position = self._writer.next_sequence
        return held_runs(self._live, position), position

    def begin_following(self, epoch: int, identity: StoreIdentity, leader: str) -> None:
        """Follow the leader of ``epoch``. ``leader``: its address, for messages.

        Raises:
            Unavailable: it leads in this epoch, or is in a later one.
            Unsupported: the leader has another vocabulary or tokenizer, or other documents from the beginning.
        """
        with self._role:
            state = self._state
            if epoch < state.epoch or (epoch == state.epoch and state.leads):
                raise Unavailable(f"{leader} leads {self.name} in epoch {epoch}, and this copy is in {state.epoch}")
            if identity != self.identity:
                self.identity = adopt_identity(self.path, self.identity, identity, not self._live.stats()["documents"])
                self.scrub()  # the log may name removed documents by keys of groups that no longer hold
            self._stop_leading(f"{self.name} is a copy here; append to {leader}")
            self._keep(state.catching_up(epoch, self._writer.next_sequence))

    def repeat(self, changes: Sequence[Change], epoch: int, complete: bool) -> int:
        """Make changes of the leader of ``epoch``. Returns the next number when they are as durable as the settings say.

        Args:
            complete: whether the store has all that the leader has then.

        Raises:
            Unavailable: it does not follow in this epoch any more.
            ResourceExhausted: the disk or memory is full.
        """
        with self._role:
            if self._state.epoch != epoch or self._state.leads:
                raise Unavailable(
                    f"{self.name} is in epoch {self._state.epoch}, and does not follow in {epoch} any more"
                )
            positions = [self._writer.repeat(change) for change in changes]
            if positions:
                self._writer.log.acknowledge(positions[-1])
            if complete and self._state.complete_below is not None:
                self._keep(self._state.in_step())
            return self._writer.next_sequence

    def before_close(self, call: Callable[[], None]) -> None:
        """Call ``call`` when the store is closed, before anything else."""
        self._resources.callback(call)

    def _begin(self) -> None:
        for page in live_pages(self._live, self._writer.next_sequence, grouped=True, tokens=False):
            self._bounds.add(page.groups.tolist())
        self._writer.begin_at(self._state.epoch * EPOCH_NUMBERS)
        self.feed.begin()

    def _stop_leading(self, refusal: str) -> None:
        with self._writer.paused():
            self.feed.end(refusal)

    def _keep(self, state: ReplicaState) -> None:
        write_state(self.path, state)
        self._state = state
