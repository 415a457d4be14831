"""A follower answers as its leader, after any sequence of changes, disconnections, restarts and promotions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from suffolk.datastore.documents import Document
from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from tests.support.examples import examples
from tests.support.replica_pair import PLAIN, Following, contents, follow, lead, make_replica

BOUNDED = replace(PLAIN, max_tokens=60, max_group_tokens=20)
GROUPS = st.sampled_from([None, "a", "b"])
TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=6)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(TOKENS, min_size=1, max_size=3), GROUPS),
    st.tuples(st.just("append"), st.lists(TOKENS, min_size=1, max_size=3), GROUPS),
    st.tuples(st.just("replace"), st.lists(TOKENS, min_size=1, max_size=3), st.sampled_from(["a", "b"])),
    st.tuples(st.just("delete"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["upkeep", "receive", "disconnect", "scrub", "reopen", "promote"])),
)


class Pair:
    """A leader and a follower. Changes that the follower has not received when it is promoted vanish."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stores = [make_replica(folder / name, BOUNDED) for name in "xy"]
        self.following: Following | None = None
        self.count = 0
        self.lead(0)

    def lead(self, number: int) -> None:
        lead(self.stores[number])
        self.leader, self.follower = number, 1 - number
        self.connect()

    def connect(self) -> Following:
        if self.following is None:
            self.following = follow(self.stores[self.leader], self.stores[self.follower])
        self.following.receive()
        return self.following

    def disconnect(self) -> None:
        if self.following is not None:
            self.following.close()
        self.following = None

    def apply(self, step: tuple[Any, ...]) -> None:
        leader = self.stores[self.leader]
        if step[0] in ("append", "replace"):
            documents = [Document(str(self.count + place), {}, np.array(each)) for place, each in enumerate(step[1])]
            self.count += len(documents)
            leader.append_batch(documents, step[2], replace=step[0] == "replace")
        elif step[0] == "delete":
            leader.delete(ids=[str(step[1])])
        elif step[0] == "upkeep":
            for store in self.stores:
                store.maintenance.work()
        elif step[0] == "receive":
            self.connect()
        elif step[0] == "disconnect":
            self.disconnect()
        elif step[0] == "scrub":
            self.stores[self.follower].scrub()
        elif step[0] == "reopen":
            self.disconnect()
            self.stores[self.follower].close()
            self.stores[self.follower] = make_replica(self.folder / "xy"[self.follower], BOUNDED)
        else:
            self.disconnect()
            self.lead(self.follower)

    def close(self) -> None:
        self.disconnect()
        for store in self.stores:
            store.close()


def answers(store: ReplicatedStore) -> list[object]:
    """Contents, and drafts of some contexts."""
    contexts = [[first, second] for first in range(4) for second in range(4)]
    found = [
        (tree.tokens.tolist(), tree.counts.tolist(), tree.match_length)
        for group in (None, "a", "b")
        for tree in store.draft_batch(contexts, group=group)
    ]
    return [contents(store), found]


@examples(25)
@given(st.lists(STEPS, max_size=25))
def test_a_follower_answers_as_its_leader(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        pair = Pair(Path(folder))
        try:
            for step in [*steps, ("upkeep",)]:  # else the leader may evict documents between the two answers
                pair.apply(step)
            pair.connect()
            leader, follower = pair.stores[pair.leader], pair.stores[pair.follower]
            assert answers(follower) == answers(leader)
            one, other = follower.status(), leader.status()
            assert (one.position, one.digest) == (other.position, other.digest)
            names = [name for name, _ in contents(leader)]
            assert len(set(names)) == len(names)
        finally:
            pair.close()
