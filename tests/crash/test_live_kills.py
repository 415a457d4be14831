"""A live store that is killed at fail points and at random times has every acknowledged change once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.live_kills import CHANGES, WORK, KilledStore

RANDOM_KILLS = 6


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer("tests.support.live_work") as running:
        yield running


REACHED = {
    "unbounded": {
        "append.visible",
        "remove.visible",
        "rotate.created",
        "flush.published",
        "MANIFEST.renamed",
        "checkpoint.renamed",
    },
    "bounded memory": {"append.visible", "evict.dropped"},
    "bounded files": {"append.visible", "flush.published", "finish.removed"},
}


@pytest.mark.parametrize("mode", REACHED)
def test_killed_at_every_point(server: ForkServer, tmp_path: Path, mode: str) -> None:
    killed = KilledStore(server, tmp_path, mode)
    reached = killed.run(failpoint="none", changes=4 * CHANGES).reached
    assert REACHED[mode] <= reached.keys()
    # In the middle of a run, which has a quarter of the changes. Rare points are not reached in each run.
    codes = [killed.run(failpoint=f"{point}@{max(1, times // 8)}").code for point, times in sorted(reached.items())]
    assert codes.count(-9) > len(codes) / 3


@pytest.mark.parametrize("point", ["created", "written", "renamed"])
def test_killed_while_it_is_made(server: ForkServer, tmp_path: Path, point: str) -> None:
    """Regression: a folder without its identity could be neither opened nor made."""
    killed = KilledStore(server, tmp_path, "unbounded")
    arguments = [str(killed.store), str(killed.journals), "0", "0", killed.mode]
    assert server.run(arguments, failpoint=f"identity.json.{point}", function=WORK).code == -9
    assert killed.store.exists()
    killed.run()


def test_killed_at_random_times(server: ForkServer, tmp_path: Path) -> None:
    killed, chooser = KilledStore(server, tmp_path, "unbounded"), random.Random(1)
    seconds = killed.run(failpoint="none").seconds
    for _ in range(RANDOM_KILLS):
        killed.run(kill_after=chooser.uniform(0, seconds))
