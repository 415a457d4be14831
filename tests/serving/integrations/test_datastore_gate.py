"""Datastores are searched for the requests that gain from it."""

from __future__ import annotations

from suffolk.serving.integrations.chain_planner import DatastoreGate


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
