"""A system's clock that jumps by a day: nothing is lost when it jumps back, and old documents go when it jumps forwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from suffolk.serving.store.live_store import writer
from suffolk.serving.store.live_store.contents import live_pages
from suffolk.serving.store.live_store.store import LiveStore
from suffolk.serving.store.live_store.times import StoreClock
from tests.serving.store.live_store.conftest import OpenStore
from tests.serving.store.live_store.test_live_bounds import first_tokens, without_keeper
from tests.support.live_store_model import Clocks

DAY = 86_400
HOUR = 3600


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    """The clocks of stores that are opened from now on."""
    found = Clocks()
    monkeypatch.setattr(writer, "StoreClock", lambda last: StoreClock(last, lambda: found.wall, lambda: found.steady))
    return found


def opened(open_store: OpenStore) -> LiveStore:
    return without_keeper(open_store(ttl_seconds=HOUR))


def times(store: LiveStore) -> list[int]:
    return [int(time) for page in live_pages(store.writer.index, 100) for time in page.times]


def test_a_clock_is_read_once() -> None:
    clocks = Clocks(1000.0, 5.0)
    clock = StoreClock(0, lambda: clocks.wall, lambda: clocks.steady)
    clocks.wall, clocks.steady = 0.0, 7.0
    assert clock.now() == 1002
    behind = StoreClock(1002, lambda: clocks.wall, lambda: clocks.steady)
    assert (behind.behind, behind.now()) == (1002, 1002)


@pytest.mark.parametrize("jump", [-DAY, DAY])
def test_a_jump_changes_nothing_while_the_store_is_open(open_store: OpenStore, clocks: Clocks, jump: int) -> None:
    store = opened(open_store)
    store.append([1])
    clocks.wall += jump
    store.append([2])
    store.maintenance.work()
    assert first_tokens(store) == [1, 2]
    assert times(store) == [10**9, 10**9]
    clocks.advance(HOUR + 1)
    store.maintenance.work()
    assert first_tokens(store) == []


@pytest.mark.parametrize("flushed", [False, True])
def test_nothing_is_lost_when_the_clock_jumps_back(open_store: OpenStore, clocks: Clocks, flushed: bool) -> None:
    """Regression: the time of published documents was not known when the log held none."""
    store = opened(open_store)
    store.append([1])
    if flushed:
        store.flush()
        store.scrub()
    clocks.wall -= DAY
    store = opened(open_store)
    assert store.stats().clock_behind_seconds == DAY
    store.append([2])
    store.maintenance.work()
    assert times(store)[-1] == 10**9
    assert first_tokens(store) == [1, 2]
    clocks.advance(HOUR + HOUR // 8 + 1)  # they expire in their time
    store.maintenance.work()
    assert first_tokens(store) == []


@pytest.mark.parametrize("flushed", [False, True])
def test_old_documents_go_when_the_clock_jumps_forwards(open_store: OpenStore, clocks: Clocks, flushed: bool) -> None:
    store = opened(open_store)
    store.append([1])
    if flushed:
        store.flush()
    clocks.wall += DAY
    store = opened(open_store)
    store.append([2])
    store.maintenance.work()
    assert first_tokens(store) == [2]
    clocks.wall -= DAY  # corrected: the store's time goes on from its newest document
    store = opened(open_store)
    store.append([3])
    store.maintenance.work()
    assert first_tokens(store) == [2, 3]
