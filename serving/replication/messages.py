"""What copies say to each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from suffolk.serving.replication.document_table import Listed
from suffolk.serving.replication.feed import Subscription


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """What a replica is and has. ``info()["replica"]`` holds it.

    Attributes:
        id: of the replica, random, kept in its folder. run: of its process.
        epoch: the last one that it knows of.
        leads: whether it leads in that epoch.
        in_step: whether it has everything acknowledged, as far as it knows.
        compared: whether it led, or was compared with a leader, since it was started.
        position, digest: the number of its next change, and the sum of the checksums of its documents.
        copies: copies that a change needs.
        followers: of a leader: followers that have everything.
    """

    id: str
    run: str
    epoch: int
    leads: bool
    in_step: bool
    compared: bool
    position: int
    digest: int
    copies: int
    followers: int


@dataclass(frozen=True, slots=True)
class Hello:
    """What a follower says first. ``position``: its next number."""

    replica: str
    epoch: int
    held: Listed
    position: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """A leader's answer: the subscription to all changes from now on, and the records that the follower lacks until now.

    Attributes:
        refill: the follower must forget all of its documents first. It may do so only when it is not in step.
    """

    epoch: int
    refill: bool
    subscription: Subscription
    missing: Iterator[bytes]
