"""Kills servers with copies of a store while writers change it, and checks what is left."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suffolk.datastore.errors import Unavailable
from tests.support.live_work import tokens_of
from tests.support.replica_work import Writer
from tests.support.replicas import Replicas

COUNT = 3
WRITERS = 2


@dataclass
class KillReport:
    """What was done, and the longest time that a change waited for a leader."""

    kills: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    unknown: int = 0
    longest_wait: float = 0.0


def kill_servers(folder: Path, kills: int, seed: int, options: tuple[str, ...] = ()) -> KillReport:
    """Kill servers ``kills`` times under changes. Raises AssertionError: something acknowledged is lost, or something is twice."""
    chooser, report = random.Random(seed), KillReport()
    with Replicas(folder, COUNT, options) as replicas:
        replicas.start(*range(COUNT))
        leader = replicas.leader()
        writers = [Writer(number, replicas.urls, seed) for number in range(WRITERS)]
        try:
            for _ in range(kills):
                leader = _kill_one(replicas, leader, chooser, report)
        finally:
            for writer in writers:
                writer.stop()
        replicas.await_step()
        replicas.stop()
        _check(replicas, writers)
    for writer in writers:
        report.acknowledged += writer.expected.acknowledged
        report.unknown += writer.expected.unknown
        report.longest_wait = max(report.longest_wait, writer.longest_wait)
    return report


def _kill_one(replicas: Replicas, leader: int, chooser: random.Random, report: KillReport) -> int:
    """Kill the leader or a follower at a random time, choose a leader if need be, and start the killed one. Returns the leader."""
    time.sleep(chooser.uniform(0, 0.5))
    victim = leader if chooser.random() < 0.7 else chooser.randrange(COUNT)
    if victim != leader:
        replicas.kill(victim)
        report.kills["follower"] += 1
    else:
        replicas.kill(leader)
        report.kills["leader"] += 1
        leader = replicas.leader()
    time.sleep(chooser.uniform(0, 0.5))
    replicas.start(victim)
    if chooser.random() < 0.5:
        replicas.await_step()
    else:
        _await_copies(replicas, leader)
    return replicas.leader()


def _await_copies(replicas: Replicas, leader: int) -> None:
    """Wait until the store takes changes: until another death loses nothing."""
    while True:
        status = replicas.status(leader)
        if not isinstance(status, Exception) and status.followers:
            return
        assert isinstance(status, Unavailable) or not isinstance(status, Exception), status
        time.sleep(0.02)


def _check(replicas: Replicas, writers: Sequence[Writer]) -> None:
    found = [replicas.documents(number) for number in range(COUNT)]
    assert all(sorted(each, key=str) == sorted(found[0], key=str) for each in found), "copies differ"
    for name, _, tokens in found[0]:
        assert tokens == tokens_of(str(name)), "a document has other tokens"
    for writer in writers:
        names = [str(name) for name, _, _ in found[0]]
        writer.expected.check([name for name in names if name.startswith(f"{writer.number}-")])
