"""Chooses the copy that leads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    A change is acknowledged when ``copies`` copies have it. So of any ``len(urls) - copies + 1`` copies, one has it. As many must
    answer; they follow no earlier leader any more, and the one of them with the most leads. Of equal ones, the first does.

    Args:
        urls: of all copies of the store, also of those that do not answer.

    Raises:
        InvalidArgument: a URL is malformed, or given twice.
        Unavailable: too few copies answer. Nothing is lost; try again when more of them run.
    """
    with ExitStack() as stack:
        peers = _connect(urls, stack)
        found = {url: _asked(peer.status) for url, peer in peers.items()}
        known = [each for each in found.values() if isinstance(each, ReplicaStatus)]
        copies = max((each.copies for each in known), default=1)
        needed = max(1, len(urls) - copies + 1)
        _require(found, needed)
        epoch = 1 + max(each.epoch for each in known)
        answering = [url for url, each in found.items() if isinstance(each, ReplicaStatus)]
        fenced = {url: _asked(lambda url=url: peers[url].fence(epoch)) for url in answering}  # type: ignore[misc]
        _require(found | fenced, needed)
        claims = {url: each.claim for url, each in fenced.items() if isinstance(each, ReplicaStatus)}
        leader = max(claims, key=lambda url: claims[url])
        peers[leader].lead(epoch)
        return Promotion(leader, epoch, found)


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


def _require(found: Mapping[str, ReplicaStatus | SuffolkError], needed: int) -> None:
    answers = sum(isinstance(each, ReplicaStatus) for each in found.values())
    if answers < needed:
        problems = "; ".join(str(each) for each in found.values() if isinstance(each, SuffolkError))
        raise Unavailable(
            f"{answers} of {len(found)} copies answer, and {needed} must, so that no acknowledged change is lost: {problems}"
        )
