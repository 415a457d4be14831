"""Passes the changes of a leader to its followers, and counts which of them have a change."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from suffolk.datastore.errors import DeadlineExceeded, Unavailable
from suffolk.serving.transport.call_errors import REFUSED, UNSURE

COPY_SECONDS = 5.0
"""How long an append waits for its copies. A follower that is silent for this time is dropped."""
MAX_WAITING_BYTES = 256 << 20
"""Most changes that wait for a follower. With more it is dropped. It connects again, and gets what it lacks."""


class Subscription:
    """What one follower gets and has. ``Feed`` makes and guards it.

    Attributes:
        follower: its address, for messages.
        last_seen: when it last confirmed a change, or reported work.
        confirmed: it has all changes below this number. 0: it still lacks changes from before it connected.
        ended: why it gets nothing more; empty while it does.
    """

    def __init__(self, follower: str, position: int) -> None:
        self.follower = follower
        self.position = position
        self.confirmed = 0
        self.ended = ""
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.last_seen = time.monotonic()


class Feed:
    """The changes of one store, for its followers. Thread-safe. See ``ChangeFeed``.

    Args:
        name: of the store, for messages.
        copies: copies that a change needs before it is acknowledged, the leader's own included.
    """

    def __init__(self, name: str, copies: int) -> None:
        self.copies = copies
        self._name = name
        self._refusal = f"{name} has no leader yet; choose one with 'suffolk promote'"
        self._changed = threading.Condition()
        self._subscriptions: list[Subscription] = []

    @property
    def leads(self) -> bool:
        """See ``ChangeFeed``."""
        return not self._refusal

    def begin(self) -> None:
        """Take changes."""
        self._refusal = ""

    def end(self, refusal: str) -> None:
        """Take no more changes, and send none. ``refusal``: why, and where they are taken."""
        with self._changed:
            self._refusal = refusal
            for each in list(self._subscriptions):
                self._drop(each, refusal)

    def require_lead(self) -> None:
        """See ``ChangeFeed``."""
        if self._refusal:
            raise Unavailable(f"{self._refusal}; {REFUSED}")

    def require_copies(self) -> None:
        """Refuse a change before it is made. Raises Unavailable: too few followers have everything, or it does not lead."""
        self.require_lead()
        if (have := 1 + self.followers()) < self.copies:
            raise Unavailable(
                f"{self._name} has {have} of {self.copies} copies, so it takes no changes, and {REFUSED}; start another "
                "replica, or try again when one has caught up"
            )

    def publish(self, record: bytes, position: int) -> None:
        """See ``ChangeFeed``."""
        with self._changed:
            for each in list(self._subscriptions):
                each.waiting.append(record)
                each.waiting_bytes += len(record)
                each.position = position
                if each.waiting_bytes > MAX_WAITING_BYTES:
                    self._drop(each, "the follower is too slow")
            self._changed.notify_all()

    def await_copies(self, position: int) -> None:
        """Wait until enough followers have all changes below ``position``.

        Raises:
            DeadlineExceeded: it took COPY_SECONDS, or the store no longer leads. The changes may stay, or vanish with this leader.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._refusal or self._having(position) >= self.copies, COPY_SECONDS)
            if (have := self._having(position)) >= self.copies:
                return
            for each in list(self._subscriptions):
                if 0 < each.confirmed < position or _is_silent(each):
                    self._drop(each, f"the follower confirmed nothing for {COPY_SECONDS:g} s")
        raise DeadlineExceeded(
            f"{self._name}: {have} of {self.copies} copies have the change after {COPY_SECONDS:g} s, so {UNSURE}; "
            f"look for it before you repeat it{self._refusal and ': '}{self._refusal}"
        )

    def followers(self) -> int:
        """The followers that are in step."""
        with self._changed:
            return sum(bool(each.confirmed) for each in self._subscriptions)

    def behind(self) -> int:
        """How many changes the follower in step with the fewest has not confirmed."""
        with self._changed:
            return max((each.position - each.confirmed for each in self._subscriptions if each.confirmed), default=0)

    @contextmanager
    def subscribed(self, follower: str, position: int) -> Iterator[Subscription]:
        """Send changes from number ``position`` on to a follower, until the block ends."""
        found = Subscription(follower, position)
        with self._changed:
            self.require_lead()
            self._subscriptions.append(found)
        try:
            yield found
        finally:
            with self._changed:
                self._drop(found, "the follower left")

    def take(self, subscription: Subscription, seconds: float) -> tuple[bytes, int]:
        """The records that wait, and the number of the next change. Waits for ``seconds`` if there are none.

        Raises:
            Unavailable: the subscription has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: subscription.waiting or subscription.ended, seconds)
            if _is_silent(subscription):
                self._drop(subscription, f"the follower confirmed nothing for {COPY_SECONDS:g} s")
            if subscription.ended:
                raise Unavailable(subscription.ended)
            records = b"".join(subscription.waiting)
            subscription.waiting.clear()
            subscription.waiting_bytes = 0
            return records, subscription.position

    def confirm(self, subscription: Subscription, position: int) -> None:
        """Note that the follower has all changes below ``position``, or works, if that is 0."""
        with self._changed:
            subscription.last_seen = time.monotonic()
            subscription.confirmed = max(subscription.confirmed, position)
            self._changed.notify_all()

    def drop(self, subscription: Subscription, reason: str) -> None:
        """Send no more changes."""
        with self._changed:
            self._drop(subscription, reason)

    def _drop(self, subscription: Subscription, reason: str) -> None:
        subscription.ended = subscription.ended or reason
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        self._changed.notify_all()

    def _having(self, position: int) -> int:
        return 1 + sum(each.confirmed >= position for each in self._subscriptions)


def _is_silent(subscription: Subscription) -> bool:
    return time.monotonic() - subscription.last_seen > COPY_SECONDS
