"""The virtual clock, the register and the links between servers. Everything random comes from one seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count

from suffolk.datastore.errors import Unavailable
from suffolk.serving.store.replication.register import Entry, Leadership


class World:
    """Runs events in the order of their times.

    Attributes:
        now: seconds since the beginning.
        cut: pairs of names between which nothing arrives; the register has the name -1.
        loss: share of calls of the register of which the outcome is not learned.
    """

    def __init__(self, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.now = 0.0
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.entry = Entry()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Run ``event`` after ``seconds``."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def reaches(self, one: int, other: int) -> bool:
        """Whether messages pass from ``one`` to ``other``."""
        return (one, other) not in self.cut


class SimulatedRegister:
    """The register as the server ``number`` sees it."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number

    def read(self) -> Entry:
        self._call()
        return self._world.entry

    def swap(self, version: int, value: Leadership) -> bool:
        self._call()
        world = self._world
        if world.chooser.random() < world.loss:
            if world.chooser.random() < 0.5:
                self._swap(version, value)
            else:
                world.after(world.chooser.uniform(0, 4), lambda: self._swap(version, value) and None)
            raise Unavailable("the answer of the register is lost")
        return self._swap(version, value)

    def _swap(self, version: int, value: Leadership) -> bool:
        if self._world.entry.version != version:
            return False
        self._world.entry = Entry(version + 1, value)
        return True

    def _call(self) -> None:
        if not self._world.reaches(self._number, -1) or self._world.chooser.random() < self._world.loss / 2:
            raise Unavailable("the register does not answer")
