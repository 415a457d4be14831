"""Chain lengths adapt to the times of a host's passes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, repeat

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.integrations.chain_planner import ChainPlanner

CHANCE = 0.7


class Host:
    """A simulated host.

    A pass takes ``base`` + ``row`` seconds a row, and a drafted token is accepted with probability ``CHANCE``.
    """

    def __init__(self, base: float, row: float, searches: Iterable[float] = repeat(0.0)) -> None:
        """``searches``: seconds of each search."""
        self.searches = iter(searches)
        self.now, self.base, self.row = 0.0, base, row
        self.planner = ChainPlanner(clock=lambda: self.now)
        self.planner.begin(1)
        self.rng = np.random.default_rng(2)
        self.tokens = self.drafted = 0

    def step(self) -> int:
        """Run one pass. Returns the number of drafted tokens."""
        scores = (CHANCE ** np.arange(1, 9)).astype(np.float32)
        chain = DraftTree(np.arange(8, dtype=np.int32), np.arange(-1, 7, dtype=np.int32), scores, np.ones(8, np.uint32))
        chains, seconds = ({1: chain}, next(self.searches)) if self.planner.may_draft(1) else ({}, 0.0)
        self.now += seconds
        cut = self.planner.cut(chains, set(), 1, 50.0, seconds)
        size = len(cut.get(1, ()))
        self.planner.leave()
        self.now += self.base + self.row * (1 + size)
        taken = 0
        while taken < size and self.rng.random() < CHANCE:
            taken += 1
        generated = np.array([*range(taken), 99], np.int32)
        self.planner.learn({1: generated}, 50.0, True)
        self.tokens += len(generated)
        self.drafted += size
        return size


@pytest.mark.parametrize(("row", "least", "most"), [(0.0001, 6, 8), (0.03, 1, 5), (1.0, 0, 0.3)])
def test_long_chains_need_cheap_rows(row: float, least: float, most: float) -> None:
    host = Host(0.1, row)
    for _ in range(200):
        host.step()
    assert least <= np.mean([host.step() for _ in range(100)]) <= most


@pytest.mark.parametrize("row", [0.0001, 0.03, 0.1, 1.0])
def test_drafting_is_never_slower_than_none(row: float) -> None:
    host = Host(0.1, row)
    for _ in range(600):
        host.step()
    assert host.tokens / host.now > 0.98 / (0.1 + row)


def test_passes_that_read_prompts_are_not_timed() -> None:
    host = Host(0.1, 0.001)
    for _ in range(8):
        host.planner.leave()
        host.now += 5.0
        host.planner.learn({1: np.array([1], np.int32)}, 50.0, False)
    host.step()
    assert host.planner._costs.time(1, 1, 50.0) < 0.2


def test_the_first_pass_has_no_drafts() -> None:
    host = Host(0.1, 0.001)
    assert host.step() == 0
    assert host.step() > 0


def test_searches_that_other_programs_interrupt_do_not_end_drafting() -> None:
    """One search in three is interrupted for ten passes, as any part of a step may be. The others take a hundredth of a pass."""
    host = Host(0.1, 0.001, cycle([0.001, 0.001, 1.0]))
    for _ in range(300):
        host.step()
    assert np.mean([host.step() > 0 for _ in range(100)]) > 0.9


def test_searches_that_are_always_slow_end_drafting() -> None:
    host = Host(0.1, 0.001, repeat(1.0))
    sizes = [host.step() for _ in range(600)]
    assert sum(size > 0 for size in sizes[100:]) < 10
