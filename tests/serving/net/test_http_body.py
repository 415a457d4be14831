"""Large bodies take turns, and wait for them without a thread."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from suffolk.datastore import duty_cycle
from suffolk.datastore.duty_cycle import DutyCycle
from suffolk.serving.net.http_body import LARGE, LargeBodies
from tests.support.waiting import HANG


def test_large_bodies_take_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, begins = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def parse() -> None:
        begins.append(now[0])
        now[0] += 1.0

    async def run() -> None:
        bodies = LargeBodies()
        for _ in range(3):
            await bodies.run(LARGE + 1, parse)
        now[0] += 100.0
        await bodies.run(LARGE + 1, parse)
        await bodies.run(LARGE, parse)

    monkeypatch.setattr(duty_cycle, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    asyncio.run(run())
    assert begins == [0.0, 10.0, 20.0, 121.0, 122.0]


def test_waiting_bodies_occupy_no_thread() -> None:
    """Regression: large bodies that waited for their turn held all threads, so a small body waited behind them."""
    gate, running, most = threading.Event(), [0], [0]

    def parse() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        assert gate.wait(HANG)
        running[0] -= 1

    async def run() -> None:
        bodies = LargeBodies(DutyCycle(1.0))
        large = [asyncio.create_task(bodies.run(LARGE + 1, parse)) for _ in range(64)]
        assert await asyncio.wait_for(bodies.run(1, lambda: "small"), HANG) == "small"
        gate.set()
        await asyncio.gather(*large)

    asyncio.run(run())
    assert most == [1]


def test_a_cancelled_call_keeps_its_turn_until_its_thread_ends() -> None:
    entered, gate = threading.Event(), threading.Event()

    def parse() -> None:
        entered.set()
        assert gate.wait(HANG)

    async def run() -> None:
        bodies = LargeBodies(DutyCycle(1.0))
        first = asyncio.create_task(bodies.run(LARGE + 1, parse))
        await asyncio.to_thread(entered.wait, HANG)
        waiting = asyncio.create_task(bodies.run(LARGE + 1, parse))
        last = asyncio.create_task(bodies.run(LARGE + 1, gate.is_set))
        await asyncio.sleep(0)
        for call in (first, waiting):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert not last.done()
        gate.set()
        assert await asyncio.wait_for(last, HANG)

    asyncio.run(run())
