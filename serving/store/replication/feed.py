"""Passes the changes of a leader to its followers, and tracks which followers have each change."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from suffolk.datastore.errors import DeadlineExceeded, Unavailable
from suffolk.serving.store.live_store.record import Change, ChangeFeed, frame
from suffolk.serving.store.replication.documents import DocumentChecksums

SILENT_SECONDS = 1.5
"""A copy that makes no progress for this long is no longer in sync. A leader that is silent for this long is replaced."""
BROKEN_SECONDS = 0.5
"""The limit in place of SILENT_SECONDS after a connection has ended, until the other side connects or answers again."""
COPY_SECONDS = 5.0
"""How long an append waits for its copies. A connection that is silent for this time is dropped."""
NEAR_CHANGES = 1000
"""A follower that lacks at most this many changes may come in sync. From then on, each change waits for it."""
MAX_WAITING_BYTES = 256 << 20
"""The most bytes of changes that wait for a follower. With more, the follower is dropped. It connects again, and gets the changes
that it lacks."""


class RecordBatch(NamedTuple):
    """Records for a follower, and the state after them: number of the next change, and digest of all documents."""

    records: bytes
    position: int
    digest: int


@dataclass(slots=True)
class Subscription:
    """The changes that one follower gets and has confirmed. ``Feed`` makes and guards it.

    Attributes:
        replica: the follower's id.
        last_seen: when it last confirmed a change, or reported work.
        confirmed: the follower has all changes below this number. 0: it still lacks changes from before it connected.
        ended: why the follower gets no more changes; empty while it gets them.
    """

    replica: str
    position: int
    digest: int
    last_seen: float
    confirmed: int = 0
    ended: str = ""
    waiting: deque[bytes] = field(default_factory=deque)
    waiting_bytes: int = 0


class Feed(ChangeFeed):
    """The changes of one store, for its followers. Thread-safe.

    Args:
        name: the store's name, for messages.
        write_quorum: copies that a change needs before it is acknowledged, the leader's own included.

    Attributes:
        documents: checksums of the store's documents. The lock of the store's writer guards them.
        reign: how often the store began to lead.
    """

    def __init__(self, name: str, write_quorum: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.write_quorum = write_quorum
        self.documents = DocumentChecksums()
        self._name = name
        self._clock = clock
        self._refusal = f"{name} has no leader yet"
        self._changed = threading.Condition(threading.RLock())
        self._subscriptions: dict[str, Subscription] = {}  # by replica
        self._required: frozenset[str] = frozenset()  # ids of followers without which nothing is acknowledged
        self._progress: dict[str, float] = {}  # by copy: when it last had all changes or made progress
        self._acknowledged = 0
        self.reign = 0

    @property
    def leads(self) -> bool:
        return not self._refusal

    def begin(self, required: Collection[str]) -> None:
        """Take changes from now on. A change is acknowledged when all copies in ``required`` have it."""
        with self._changed:
            self._refusal = ""
            self._acknowledged = 0
            self._progress.clear()
            self.reign += 1
            self.require(required)

    def end(self, refusal: str) -> None:
        """Take and send no more changes. ``refusal``: the reason, and which store takes changes."""
        with self._changed:
            self._refusal = refusal
            for each in list(self._subscriptions.values()):
                self.drop(each, refusal)

    def require_lead(self) -> None:
        if self._refusal:
            raise Unavailable(f"{self._refusal}; nothing is changed", change="none")

    def require_copies(self) -> int:
        """Check before a change that enough copies are in sync. Returns ``reign``, for ``await_copies``.

        Raises:
            Unavailable: too few copies are in sync, or the store does not lead.
        """
        reign = self.reign
        self.require_lead()
        if (have := 1 + self.followers()) < self.write_quorum:
            raise Unavailable(
                f"{self._name} has {have} of {self.write_quorum} copies, so it takes no changes, and nothing is changed; start "
                "another replica, or try again when one has caught up",
                change="none",
            )
        return reign

    def load(self, documents: Change) -> None:
        self.documents.apply(documents)

    def clear(self) -> None:
        self.documents.clear()

    def publish(self, change: Change, body: bytes, position: int) -> None:
        self.documents.apply(change)
        now = self._clock()
        record = frame(body) if self._subscriptions else b""
        with self._changed:
            for each in list(self._subscriptions.values()):
                if each.confirmed == each.position:
                    self._progress[each.replica] = now
                each.waiting.append(record)
                each.waiting_bytes += len(record)
                each.position, each.digest = position, self.documents.digest
                if each.waiting_bytes > MAX_WAITING_BYTES:
                    self.drop(each, "the follower is too slow")
            self._changed.notify_all()

    def await_copies(self, position: int, reign: int) -> None:
        """Wait until enough copies are in sync, and all of these have all changes below ``position``.

        Args:
            reign: result of ``require_copies``. A store that has not led all the time since then may have lost the changes.

        Raises:
            DeadlineExceeded: COPY_SECONDS have passed, or the store no longer leads. The changes may stay, or vanish with this
                leader.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._refusal or reign != self.reign or self._have(position), COPY_SECONDS)
            if self.try_acknowledge(position, reign):
                return
            have = 1 + sum(each.confirmed >= position for each in self._subscriptions.values())
            for each in list(self._subscriptions.values()):
                if self._clock() - each.last_seen > SILENT_SECONDS:  # later changes need not wait for it
                    self.drop(each, "the follower is silent")
        raise DeadlineExceeded(
            f"{self._name}: {have} of {max(self.write_quorum, 1 + len(self._required))} copies have the change after "
            f"{COPY_SECONDS:g} s, so it may stay or vanish; look for it before you repeat it{self._refusal and ': '}{self._refusal}"
        )

    def try_acknowledge(self, position: int, reign: int) -> bool:
        """Acknowledge changes below ``position`` if enough copies have them, so that they never vanish. Does not wait.

        Returns whether the changes are acknowledged. ``reign``: as in ``await_copies``.
        """
        with self._changed:
            if self._refusal or reign != self.reign or not self._have(position):
                return False
            self._acknowledged = max(self._acknowledged, position)
            return True

    def admit(self) -> frozenset[str]:
        """Require each follower that lacks at most NEAR_CHANGES changes: a change then waits for it, even if it is
        slow.

        Returns the ids of the followers that have all acknowledged changes.
        """
        with self._changed:
            latest = self._clock() - BROKEN_SECONDS
            near = [
                each
                for each in self._subscriptions.values()
                if each.confirmed and each.position - each.confirmed <= NEAR_CHANGES and each.last_seen > latest
            ]
            self.require(self._required.union(each.replica for each in near))
            return frozenset(each.replica for each in near if each.confirmed >= self._acknowledged)

    def require(self, replicas: Collection[str]) -> None:
        """Acknowledge only changes that all of ``replicas`` have."""
        with self._changed:
            now = self._clock()
            self._required = frozenset(replicas)
            self._progress = {each: self._progress.get(each, now) for each in {*replicas, *self._subscriptions}}
            self._changed.notify_all()

    def silent(self) -> frozenset[str]:
        """Required followers that made no progress for SILENT_SECONDS."""
        with self._changed:
            latest = self._clock() - SILENT_SECONDS
            return frozenset(each for each in self._required if self._progress[each] < latest)

    def followers(self) -> int:
        """The number of connected followers that have all or nearly all changes."""
        with self._changed:
            return sum(bool(each.confirmed) for each in self._subscriptions.values())

    def behind(self) -> int:
        """The number of changes that the slowest of ``followers`` has not confirmed."""
        with self._changed:
            known = [each for each in self._subscriptions.values() if each.confirmed]
            return max((each.position - each.confirmed for each in known), default=0)

    @contextmanager
    def subscribed(self, replica: str, position: int, digest: int) -> Iterator[Subscription]:
        """Send changes from number ``position`` on to a follower, until the block ends. An earlier connection of the
        follower is dropped."""
        found = Subscription(replica, position, digest, self._clock())
        with self._changed:
            self.require_lead()
            if (earlier := self._subscriptions.get(replica)) is not None:
                self.drop(earlier, "the follower has connected again")
            self._subscriptions[replica] = found
        try:
            yield found
        finally:
            self.drop(found, "the follower left")

    def take(self, subscription: Subscription, seconds: float) -> RecordBatch:
        """The changes that wait for a follower. If there are none, waits up to ``seconds`` for one.

        Raises:
            Unavailable: the subscription has ended.
        """
        with self._changed:
            if seconds:
                self._changed.wait_for(lambda: subscription.waiting or subscription.ended, seconds)
            if self._clock() - subscription.last_seen > COPY_SECONDS:
                self.drop(subscription, f"the follower confirmed nothing for {COPY_SECONDS:g} s")
            if subscription.ended:
                raise Unavailable(subscription.ended)
            records = b"".join(subscription.waiting)
            subscription.waiting.clear()
            subscription.waiting_bytes = 0
            return RecordBatch(records, subscription.position, subscription.digest)

    def confirm(self, subscription: Subscription, position: int) -> None:
        """Note that the follower has all changes below ``position``. With 0, it only reports that it works."""
        with self._changed:
            subscription.last_seen = self._clock()
            if subscription.ended:
                return
            if position > subscription.confirmed or position == subscription.position:
                self._progress[subscription.replica] = subscription.last_seen
            subscription.confirmed = max(subscription.confirmed, position)
            self._changed.notify_all()

    def drop(self, subscription: Subscription, reason: str) -> None:
        """Send no more changes."""
        with self._changed:
            subscription.ended = subscription.ended or reason
            if self._subscriptions.get(subscription.replica) is subscription:
                del self._subscriptions[subscription.replica]
                if subscription.replica in self._progress:
                    latest = self._clock() - SILENT_SECONDS + BROKEN_SECONDS
                    self._progress[subscription.replica] = min(latest, self._progress[subscription.replica])
            self._changed.notify_all()

    def _have(self, position: int) -> bool:
        if position <= self._acknowledged:
            return True
        having = {each.replica for each in self._subscriptions.values() if each.confirmed >= position}
        return self._required <= having and 1 + len(having & self._required) >= self.write_quorum
