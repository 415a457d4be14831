"""The decisions of one copy of a store: whom it follows, when it leads, and which copies are in sync.

It uses no threads, sockets or clock of its own: a loop calls ``tick``, and passes messages on. So ``tests/simulation`` runs many
copies in one process. docs/design/replication.md has the rules.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from suffolk.datastore.errors import Field, Internal, SuffolkError, Unavailable
from suffolk.serving.store.live_store.record import Record, encode
from suffolk.serving.store.live_store.writer import LiveWriter
from suffolk.serving.store.replication.documents import compare, missing_changes
from suffolk.serving.store.replication.feed import BROKEN_SECONDS, COPY_SECONDS, SILENT_SECONDS, Feed
from suffolk.serving.store.replication.messages import Hello, ReplicaStatus, Welcome
from suffolk.serving.store.replication.register import Entry, Leadership, Register, obstacle

EPOCH_NUMBERS = 1 << 40
"""The most changes of an epoch, the time of one leader. Epoch e has the numbers from e * EPOCH_NUMBERS on."""
READ_SECONDS = 1.0
"""Time between two readings of the register."""
LOST_SECONDS = 5.0
"""A leader stops leading if it could not read the register for this long while a copy in sync is silent."""

Ask = Callable[[], Mapping[str, ReplicaStatus]]
"""Asks the other copies. Returns the copies that answer, by id."""


class Member:
    """One copy. Thread-safe.

    Args:
        name: the store's name, for messages.
        replica: the copy's id.
        new_id: gives the copy another id, and keeps it on disk.
        max_lag: seconds after which the copy answers no queries unless it knows that it is in sync; None: it always answers.
        on_lead: called before the copy takes changes as leader.
        run: an id of this process; empty: a random one.

    Attributes:
        entry: the content of the register when it was read last.
        problem: why the copy does not lead and does not follow.
        lag_changes: changes that the copy lacked when the leader's last message arrived.
        differences: how often the documents of this copy differed from its leader's, or from a follower's.
    """

    def __init__(
        self,
        name: str,
        replica: str,
        new_id: Callable[[], str],
        writer: LiveWriter,
        feed: Feed,
        register: Register,
        max_lag: float | None = None,
        on_lead: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        run: str = "",
    ) -> None:
        self.name, self.id = name, replica
        self.entry = Entry()
        self.problem = ""
        self.lag_changes = self.differences = 0
        self._run, self._new_id = run or secrets.token_hex(8), new_id
        self._writer, self._feed, self._register = writer, feed, register
        self.max_lag, self._on_lead, self._clock = max_lag, on_lead, clock
        self._compared = False
        self._intact = True  # False: it must leave the copies in sync, but could not write its new id
        self._left = False  # whether it took another id since it was compared last
        self._following = 0  # the epoch whose changes it repeats
        self._led = 0  # the last epoch in which this process led
        self._bid = 0  # the epoch in which it wants to lead
        self._heard = self._received = clock()  # when the leader last answered or sent a message, and last sent one
        self._complete = self._heard  # when it last had all that the leader had
        self._read_at = float("-inf")  # when the register was read last
        self._sure_at = float("-inf")  # when the register last had this copy in sync
        self._deciding = threading.Lock()  # held while the register is read and changed; taken before _role
        self._role = threading.RLock()  # held while this copy changes its role, or repeats changes

    # What a loop calls

    def tick(self, ask: Ask) -> tuple[str, int] | None:
        """Decide what is next. Returns the id and the epoch of the leader to follow; None if there is none.

        Raises:
            SuffolkError: the register does not answer. The copy still leads or follows as before.
        """
        with self._deciding:
            if self._feed.leads:
                self._keep_lead()
                return None
            self.read(READ_SECONDS if self._hears() else 0)
            value = self.entry.value
            if self._leads_by_register():
                self._begin()
                return None
            if self._hears():
                return value.leader, value.epoch
            found = ask()
            if self.id in found and found[self.id].run != self._run:
                self.problem = f"another server has a copy of {self.name} of this id; remove live/replica.json in one"
                return None
            leader = found.get(value.leader)
            if leader is not None and leader.leads and leader.epoch == value.epoch:
                self._heard = self._clock()
                return value.leader, value.epoch
            self.problem = obstacle(self.name, value, self.status(), self._writer.log.failure, self._intact, found)
            gone = leader is not None and (leader.run != value.run or leader.epoch == value.epoch)
            if not self.problem and (gone or not value.epoch or self._is_silent()):
                self._take_lead()
            known = self.entry.value
            return (known.leader, known.epoch) if known.epoch != value.epoch and known.leader in found else None

    def lead(self, accept_loss: bool) -> str:
        """Lead from now on, by order of an operator. Returns what may be lost; empty if nothing can be lost.

        Raises:
            Unavailable: the copy is not in sync, and ``accept_loss`` is not given; or another copy was faster.
        """
        with self._deciding:
            self.read(0)
            value = self.entry.value
            if self._feed.leads and self._leads_by_register():
                return ""
            if self._feed.leads:
                self._stop_leading(f"{self.name} has no leader yet")
            sure = self._compared and self.id in value.in_sync and self._writer.log.failure is None
            others = [each for each in value.in_sync if each != self.id]
            lost = (
                f"{self.name}: this copy has changes below {self._writer.next_sequence} and is not known to be in sync; changes "
                f"that only others have ({', '.join(others) or 'none are known'}) are lost"
            )
            if not sure and not accept_loss:
                raise Unavailable(f"{lost} if it leads; promote one of those, or give --accept-loss")
            lost = "" if sure else lost
            self._take_lead(() if lost else value.in_sync)
            if not self._feed.leads:
                raise Unavailable(
                    f"{self.name}: another copy began to lead at the same time; check again which copy leads"
                )
            return lost

    def is_stalled(self) -> bool:
        """Whether the connection to the leader should be given up, because nothing arrives."""
        return self._clock() - self._received > COPY_SECONDS

    def require_fresh(self) -> None:
        """Check that queries may be answered. Raises Unavailable: this copy may lack acknowledged deletions."""
        if self.max_lag is not None and (age := self._clock() - self._sure_at) > self.max_lag:
            since = f"for {age:.1f} s" if age < 1e9 else "since it was started"
            raise Unavailable(
                f"{self.name}: this copy is not known to be in sync {since}, and ",
                Field("max_lag"),
                f" is {self.max_lag:g} s; ask another one, or try again when it has caught up",
            )

    def lag_seconds(self) -> float:
        """Time since the copy last had all changes of its leader."""
        return self._clock() - self._complete

    def status(self) -> ReplicaStatus:
        """The copy's present state."""
        with self._writer.paused() as position:
            value = self.entry.value
            return ReplicaStatus(
                self.id,
                self._run,
                value.epoch,
                self._feed.leads,
                self._compared and self.id in value.in_sync,
                self._compared,
                position,
                self._feed.documents.digest,
                self._feed.write_quorum,
                self._feed.followers() if self._feed.leads else 0,
            )

    # Messages of a follower

    def hello(self, epoch: int) -> Hello:
        """Begin to follow the leader of ``epoch``. The copy first stops taking changes, and then lists its documents."""
        with self._role:
            self._stop_leading(f"{self.name} is a copy here, and follows the leader of epoch {epoch}")
            self._received = self._clock()
            with self._writer.paused() as position:
                return Hello(self.id, epoch, self._feed.documents.listed(), position)

    def begin_following(self, epoch: int, refill: bool, leader: str) -> None:
        """Repeat the changes of the leader of ``epoch``, at the address ``leader``.

        Raises:
            Unavailable: the copy leads, or knows of a later epoch, or has just taken another id.
            ResourceExhausted: the disk is full.
        """
        with self._role:
            if self._feed.leads or epoch != self.entry.value.epoch:
                raise Unavailable(f"{leader} leads {self.name} in epoch {epoch}, and this copy knows of another leader")
            self._feed.end(f"{self.name} is a copy here; append to {leader}")
            if refill:
                self._leave()
                self._writer.clear()
            self._following = epoch

    def repeat(self, records: Sequence[Record], epoch: int, ahead: tuple[int, int] | None, now: int = 0) -> int:
        """Make the changes of the leader of ``epoch``. Return the next number once they are as durable as the settings require.

        Args:
            ahead: the leader's position and digest, if the copy has all changes once ``records`` are repeated; else None.
            now: the leader's time; 0: unknown.

        Raises:
            Unavailable: the copy does not follow in this epoch any more.
            ResourceExhausted: the disk or memory is full.
            Internal: the copy's documents differ from the leader's.
        """
        with self._role:
            if self._following != epoch:
                raise Unavailable(f"{self.name} does not follow in epoch {epoch} any more")
            positions = [self._writer.repeat(each) for each in records]
            if positions:
                self._writer.log.acknowledge(positions[-1])
            if now:
                self._writer.clock.set(now)
            with self._writer.paused() as position:
                digest = self._feed.documents.digest
            self._heard = self._received = self._clock()
            if ahead is not None:
                self.lag_changes = max(0, ahead[0] - position)
                if ahead != (position, digest):
                    self.differences += 1
                    self._leave()
                    raise Internal(
                        f"{self.name} has other documents than its leader at change {position}, and is compared with it again"
                    )
                self._compared, self._left = True, False
                self._complete, self.problem = self._heard, ""
                self._note_step()
            return position

    def end_following(self) -> None:
        """Note that the connection to the leader is gone."""
        with self._role:
            self._following = 0
            self._heard = min(self._heard, self._clock() - SILENT_SECONDS + BROKEN_SECONDS)

    # Messages of a leader

    @contextmanager
    def followed(self, hello: Hello) -> Iterator[Welcome]:
        """Send changes to a follower until the block ends.

        Raises:
            Unavailable: the store does not lead, or leads in another epoch.
        """
        with ExitStack() as stack:
            with self._writer.paused() as position:
                self._feed.require_lead()
                if hello.epoch != self._led:
                    raise Unavailable(f"{self.name} leads in epoch {self._led}, and its follower is in {hello.epoch}")
                ours, digest = self._feed.documents.listed(), self._feed.documents.digest
                keys = self._writer.keys.all()
                subscription = stack.enter_context(self._feed.subscribed(hello.replica, position, digest))
            found = compare(ours, hello.held)
            refill = found.must_refill(hello.position, position)
            if refill:
                self.differences += found.differs
                found = compare(ours, hello.held[:0])
            missing = missing_changes(self._writer.index, position, found, keys, self._writer.dtype)
            yield Welcome(self._led, refill, subscription, map(encode, missing))

    # Decisions

    def _hears(self) -> bool:
        """Whether the copy follows a leader that is not silent."""
        return bool(self._following) and self._following == self.entry.value.epoch and not self._is_silent()

    def _is_silent(self) -> bool:
        return self._clock() - self._heard > SILENT_SECONDS

    def _take_lead(self, in_sync: Sequence[str] | None = None) -> None:
        """Try to become the leader. ``in_sync``: the copies to keep; None: all, or all except the former leader if they suffice."""
        value = self.entry.value
        if in_sync is None:
            rest = [each for each in value.in_sync if each != value.leader or each == self.id]
            in_sync = rest if len(rest) >= self._feed.write_quorum else value.in_sync
        kept = tuple(sorted({*in_sync, self.id}))
        with self._writer.paused() as position:
            digest = self._feed.documents.digest
        # a lost register begins with epoch 0, but numbers must not fall
        known = replace(value, epoch=max(value.epoch, (position - 1) // EPOCH_NUMBERS))
        wanted = known.succeeded(self.id, self._run, kept, position, digest)
        self._bid = wanted.epoch
        try:
            self._register.swap(self.entry.version, wanted)
        finally:
            self.read(0)
        if self._leads_by_register():
            self._begin()

    def _keep_lead(self) -> None:
        """As leader: check whether another leader was chosen, and change which copies are in sync."""
        try:
            self.read(0 if self._feed.silent() else READ_SECONDS)  # silent copies may follow another leader
        except SuffolkError:
            if self._clock() - self._read_at > LOST_SECONDS and self._feed.silent():
                self._stop_leading(f"{self.name} has lost its copies and the register; another copy may lead")
            raise
        finally:
            log = self._writer.log
            refused = log.refusal if len(self.entry.value.in_sync) > 1 else None
            if (failure := log.failure or refused) is not None:
                self._heard = self._clock()  # waits, so that another copy may take the lead
                self._stop_leading(f"{self.name} does not lead any more: {failure}")
        value = self.entry.value
        if (value.epoch, value.run) != (self._led, self._run):
            self._stop_leading(f"{self.name} is led by another copy since epoch {value.epoch}")
        if not self._feed.leads:
            return
        wanted = self._wanted(value)
        if wanted == set(value.in_sync) and wanted.issuperset(self._feed.silent()):
            return  # else a silent copy that is in neither is still required, and what follows ends this
        self._require({*value.in_sync, *wanted})  # until the register has the change, old and new ones are needed
        try:
            self._register.swap(self.entry.version, replace(value, in_sync=tuple(sorted(wanted))))
        finally:
            self.read(0)
        if self._leads_by_register():
            self._require(self.entry.value.in_sync)

    def _wanted(self, value: Leadership) -> set[str]:
        """The copies that should be in sync. Silent copies are left out if the other copies are enough.

        If the others are not enough, the leader itself may be cut off. Then a silent copy in sync can replace it sooner.
        """
        joined = {*value.in_sync, *self._feed.admit(), self.id}
        heard = joined.difference(self._feed.silent())
        return heard if len(heard) >= self._feed.write_quorum else joined

    def _require(self, in_sync: Sequence[str] | set[str]) -> None:
        self._feed.require([each for each in in_sync if each != self.id])

    def _leads_by_register(self) -> bool:
        """Whether this process leads according to the register. A bid whose answer was lost may have succeeded."""
        value = self.entry.value
        epoch = self._led if self._feed.leads else self._bid
        return (value.leader, value.run, value.epoch) == (self.id, self._run, epoch)

    def _begin(self) -> None:
        with self._role:
            value = self.entry.value
            self._following, self._led, self._bid, self.problem = 0, value.epoch, 0, ""
            self._compared = True
            self._on_lead()
            self._writer.begin_at(value.epoch * EPOCH_NUMBERS)
            self._feed.begin([each for each in value.in_sync if each != self.id])
            self._note_step()

    def _stop_leading(self, refusal: str) -> None:
        """Take no more changes. When this returns, no change is under way in the store."""
        with self._role, self._writer.paused():
            self._feed.end(refusal)

    def read(self, age: float) -> None:
        """Read the register, unless it was read within ``age`` seconds."""
        begun = self._clock()
        if begun - self._read_at < age:
            return
        entry = self._register.read()
        with self._role:
            if entry.value.epoch != self.entry.value.epoch:
                self._heard = begun  # a new leader has time to begin
            self.entry, self._read_at = entry, begun
            self._note_step()

    def _note_step(self) -> None:
        """Note whether this copy was in sync when the register was read: it then has all changes acknowledged before."""
        if self._compared and self.id in self.entry.value.in_sync:
            self._sure_at = self._read_at

    def _leave(self) -> None:
        """Leave the copies in sync, because documents are missing or differ. This copy takes a new id, and the register does
        not know that id.

        Raises:
            Unavailable: the copy has left now; it must connect again with its new id.
            ResourceExhausted, PermissionDenied: the id cannot be kept on disk.
        """
        if self._left:
            return
        self._compared, self._following, self._bid, self._sure_at = False, 0, 0, float("-inf")
        self._intact = False
        self.id = self._new_id()
        self._left = self._intact = True
        raise Unavailable(f"{self.name} has other documents than its leader, and is filled again")
