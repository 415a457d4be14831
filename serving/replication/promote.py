"""Chooses the copy that leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from suffolk.datastore.errors import InvalidArgument, SuffolkError, Unavailable
from suffolk.serving.replication.peer import Peer
from suffolk.serving.replication.replica import ReplicaStatus


@dataclass(frozen=True, slots=True)
class Promotion:
    """The outcome.

    Attributes:
        leader: URL of the copy that leads now.
        epoch: the new epoch.
        found: by URL, what each copy had before, or why it did not answer.
    """

    leader: str
    epoch: int
    found: Mapping[str, ReplicaStatus | SuffolkError]


def read_replicas(urls: Sequence[str]) -> dict[str, ReplicaStatus | SuffolkError]:
    """By URL, what each copy of a store is and has, or why it did not answer. Raises InvalidArgument: a URL is malformed."""
    with ExitStack() as stack:
        peers = _connect(urls, stack)
        return {url: _asked(peer.status) for url, peer in peers.items()}


def promote(urls: Sequence[str]) -> Promotion:
    """Let the copy lead that has all acknowledged changes, in a new epoch.

    A change is acknowledged when ``copies`` copies have it. So of any ``len(urls) - copies + 1`` copies, one has it. That
    many must answer. They stop following earlier leaders. The one with the most changes leads; of equal ones, the first.

    Args:
        urls: of all copies of the store, also of those that do not answer.

    Raises:
        InvalidArgument: a URL is malformed, or given twice, or the servers have different ``copies``.
        Unavailable: too few copies answer, one of them stops answering, or another promotion runs. Nothing is lost; try again.
    """
    with ExitStack() as stack:
        peers = _connect(urls, stack)
        found = {url: _asked(peer.status) for url, peer in peers.items()}
        known = {url: each for url, each in found.items() if isinstance(each, ReplicaStatus)}
        _require(found, max(1, len(urls) - _copies(known) + 1))
        epoch = 1 + max(each.epoch for each in known.values())
        claims = {
            url: peers[url].fence(epoch).claim for url in known
        }  # in order, so that one of two promotions gets none
        leader = max(claims, key=lambda url: claims[url])
        peers[leader].lead(epoch)
        return Promotion(leader, epoch, found)


def has_leader(found: Iterable[ReplicaStatus | SuffolkError]) -> bool:
    """Whether one copy leads, in the last epoch of all that answer."""
    known = [each for each in found if isinstance(each, ReplicaStatus)]
    last = max((each.epoch for each in known), default=0)
    return sum(each.leads and each.epoch == last for each in known) == 1


def _connect(urls: Sequence[str], stack: ExitStack) -> dict[str, Peer]:
    if len(set(urls)) < len(urls):
        raise InvalidArgument("a copy is named twice; name each copy of the datastore once")
    peers = {url: Peer(url) for url in urls}
    for peer in peers.values():
        stack.callback(peer.close)
    return peers


def _asked(call: Callable[[], ReplicaStatus]) -> ReplicaStatus | SuffolkError:
    try:
        return call()
    except SuffolkError as error:
        return error


def _copies(known: Mapping[str, ReplicaStatus]) -> int:
    """Copies that a change needs. A dead leader is taken to need as many as those that answer."""
    needed = {url: each.copies for url, each in known.items()}
    if len(set(needed.values())) > 1:
        listed = ", ".join(f"{url} {copies}" for url, copies in needed.items())
        raise InvalidArgument(f"copies differ ({listed}); start all servers with the same --copies")
    return next(iter(needed.values()), 1)


def _require(found: Mapping[str, ReplicaStatus | SuffolkError], needed: int) -> None:
    answers = sum(isinstance(each, ReplicaStatus) for each in found.values())
    if answers < needed:
        problems = "; ".join(str(each) for each in found.values() if isinstance(each, SuffolkError))
        raise Unavailable(
            f"{answers} of {len(found)} copies answer, and {needed} must, so that no acknowledged change is lost: {problems}"
        )
