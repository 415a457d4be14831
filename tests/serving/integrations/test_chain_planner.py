"""Chain lengths adapt to the times of a host's passes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle, repeat

import numpy as np
import pytest

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.integrations.chain_planner import ChainPlanner, DatastoreGate, best_chain, masked_tree

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


def random_tree(seed: int, size: int) -> DraftTree:
    rng = np.random.default_rng(seed)
    parents = np.array([rng.integers(-1, node) if node else -1 for node in range(size)], np.int32)
    scores = np.empty(size, np.float32)
    for node, parent in enumerate(parents):
        scores[node] = rng.random() * (1.0 if parent < 0 else scores[parent])
    return DraftTree(rng.integers(0, 9, size).astype(np.int32), parents, scores, np.ones(size, np.uint32))


def path_to(tree: DraftTree, node: int) -> list[int]:
    return [] if node < 0 else [*path_to(tree, int(tree.parents[node])), node]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most", [1, 3, 30])
def test_the_best_chain_has_the_highest_sum(seed: int, most: int) -> None:
    tree = random_tree(seed, 30)
    paths = [path for node in range(30) if len(path := path_to(tree, node)) <= most]
    best = max(float(tree.scores[path].sum()) for path in paths)
    chain = best_chain(tree, most)
    assert chain.validate(9)
    assert chain.parents.tolist() == list(range(-1, len(chain) - 1))
    assert float(chain.scores.sum()) == pytest.approx(best)
    assert chain.tokens.tolist() in [tree.tokens[path].tolist() for path in paths]


def test_no_tree_is_no_chain() -> None:
    assert len(best_chain(DraftTree.empty(), 4)) == 0
    assert len(best_chain(random_tree(0, 5), 0)) == 0


@pytest.mark.parametrize("width", [1, 2, 7, 20])
def test_a_node_sees_its_path(width: int) -> None:
    tree = random_tree(4, 12)
    tokens, mask = masked_tree(tree, 42, width)
    assert tokens[0] == 42
    for node in range(min(12, width - 1)):
        assert np.flatnonzero(mask[node + 1]).tolist() == [0, *(each + 1 for each in path_to(tree, node))]
        assert tokens[node + 1] == tree.tokens[node]
    for unused in range(13, width):
        assert (tokens[unused], np.flatnonzero(mask[unused]).tolist()) == (0, [0, unused])


def run(gains: dict[int, float], base: float, each: float, steps: int = 2000) -> tuple[dict[int, int], float]:
    """Return how often each request is searched for in ``steps`` passes of 1 s, and the time of all searches.

    ``gains``: tokens that a search adds, for each request. A search takes ``base`` seconds plus ``each`` a request.
    """
    gate = DatastoreGate()
    for number in gains:
        gate.open(number)
    counts, seconds = dict.fromkeys(gains, 0), 0.0
    for _ in range(steps):
        chosen = gate.choose(list(gains), 1 / len(gains), 1.0)
        for number in chosen:
            counts[number] += 1
            gate.learn_gain(number, gains[number])
        if chosen:
            taken = base + each * len(chosen)
            seconds += taken
            gate.learn_time(len(chosen), taken)
    return counts, seconds


def test_a_gain_above_the_time_is_used_in_every_step() -> None:
    counts, _ = run({1: 0.3}, 0.1, 0.1)
    assert counts[1] == 2000


def test_useless_searches_take_less_than_one_percent() -> None:
    for requests in (1, 8, 64):
        counts, seconds = run(dict.fromkeys(range(requests), 0.0), 0.05, 0.01)
        assert 0 < seconds < 0.01 * 2000
        assert min(counts.values()) > 5


def test_the_first_requests_need_few_searches() -> None:
    counts, _ = run(dict.fromkeys(range(8), 0.0), 0.05, 0.01, 60)
    assert max(counts.values()) < 25


def test_only_requests_that_gain_are_searched_for() -> None:
    counts, _ = run({1: 3.0, 2: 0.0, 3: 0.0, 4: 0.0}, 0.05, 0.01)
    assert counts[1] == 2000
    assert 0.01 * sum(counts[number] for number in (2, 3, 4)) < 0.01 * 2000  # seconds


def test_new_requests_start_with_the_mean_of_all() -> None:
    gate = DatastoreGate()
    gate.open(1)
    gate.learn_time(1, 0.2)
    for _ in range(100):
        gate.learn_gain(1, 0.0)
    gate.close(1)
    gate.open(2)
    assert gate.choose([2], 1.0, 1.0) == set()


def test_a_request_that_begins_to_gain_is_found() -> None:
    gate = DatastoreGate()
    gate.open(1)
    gate.learn_time(1, 0.1)
    for _ in range(200):
        gate.learn_gain(1, 0.0)
    searched = 0
    for _ in range(400):
        if gate.choose([1], 1.0, 1.0):
            searched += 1
            gate.learn_gain(1, 2.0)
            gate.learn_time(1, 0.1)
    assert searched > 300
