"""Commands killed at fail points and at random times leave the old or the new generation, and can continue."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.killing import Change, look, make_changes, prove

NAMES = ["fresh", "append", "replace", "replace-ids", "delete", "compact"]
RANDOM_KILLS = 8


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as running:
        yield running


@pytest.fixture(scope="module")
def changes(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Change]:
    return {change.name: change for change in make_changes(tmp_path_factory.mktemp("changes"), server)}


def test_the_changes_reach_all_points(changes: dict[str, Change]) -> None:
    assert sorted(changes) == sorted(NAMES)
    reached = {point for change in changes.values() for point in change.points}
    assert {"MANIFEST.written", "segment.written", "journal.appended", "publish.moved", "finish.removed"} <= reached
    assert len(changes["fresh"].after.segments) == len(changes["append"].after.segments) - 3 == 3


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_every_point(server: ForkServer, changes: dict[str, Change], tmp_path: Path, name: str) -> None:
    change = changes[name]
    for point, times in change.points.items():
        for time in range(1, times + 1):
            store = tmp_path / f"{point}-{time}"
            change.prepare(store)
            ending = server.run(change.command(store), failpoint=f"{point}@{time}")
            assert ending.code == -9, f"{point}@{time} was not reached"
            prove(change, store, ending, server)


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random_times(server: ForkServer, changes: dict[str, Change], tmp_path: Path, name: str) -> None:
    change, chooser = changes[name], random.Random(name)
    for number in range(RANDOM_KILLS):
        store = tmp_path / str(number)
        change.prepare(store)
        ending = server.run(change.command(store), kill_after=chooser.uniform(0, change.seconds))
        prove(change, store, ending, server)


def test_a_torn_journal_line_costs_its_segment_alone(
    server: ForkServer, changes: dict[str, Change], tmp_path: Path
) -> None:
    change, store = changes["fresh"], tmp_path / "store"
    assert server.run(change.command(store), failpoint="journal.appended@2").code == -9
    journal = store / "build" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    again = server.run(change.command(store))
    assert "going on after 1 segment of" in again.errors
    assert look(store) == change.after


def test_a_new_tokenizer_does_not_take_the_place_of_the_old(
    server: ForkServer, changes: dict[str, Change], tmp_path: Path
) -> None:
    """Regression: a single tokenizer.json used to be replaced before the manifest.

    A kill in between left old segments with a new tokenizer.
    """
    change, store = changes["replace"], tmp_path / "store"
    change.prepare(store)
    (point,) = (point for point in change.points if point.startswith("tokenizer-") and point.endswith(".renamed"))
    assert server.run(change.command(store), failpoint=point).code == -9
    assert len(list(store.glob("tokenizer-*.json"))) == 2
    assert look(store) == change.before
