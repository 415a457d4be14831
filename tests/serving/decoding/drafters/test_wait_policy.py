"""The wait policy waits for a reply if the expected gain exceeds the cost. It has no fixed bound."""

from __future__ import annotations

import pytest

from suffolk.serving.decoding.drafters.retrieval.inflight_call import WaitPolicy


def steps(policy: WaitPolicy, count: int, seconds: float, promised: float = 1.0, foreseen: float = 0.5) -> int:
    """Count the steps in which the policy waits, with passes of one second and calls of ``seconds``."""
    waited = 0
    for _ in range(count):
        waits = policy.should_wait(1.0)
        waited += waits
        if waits:
            policy.learn_call(seconds)
        policy.learn_draft(promised if waits else foreseen * promised, waits)
    return waited


@pytest.mark.parametrize(("seconds", "near"), [(0.01, True), (0.2, True), (0.5, False), (5.0, False)])
def test_what_takes_less_than_it_adds_is_waited_for(seconds: float, near: bool) -> None:
    """The bound here is a third of a pass.

    Waiting then gives (1 + 1) / (1 + 1/3) tokens a second, and not waiting gives 1 + 0.5.
    """
    policy = WaitPolicy()
    steps(policy, 200, seconds)
    assert policy.prefetches is not near
    waited = steps(policy, 4000, seconds)
    assert (
        waited == 4000 if near else 0 < waited * seconds <= 0.005 * 4000 + seconds
    )  # the service may have become faster


def test_one_slow_call_or_seven_do_not_make_it_far() -> None:
    """Regression: the demonstration used to alternate between waiting and prefetching.

    This depended on whether its first calls took 11 or 13 ms.
    """
    policy = WaitPolicy()
    steps(policy, 50, 0.01)
    for _ in range(7):
        policy.learn_call(3.0)
    assert policy.should_wait(1.0)


@pytest.mark.parametrize("promised", [0.5, 1.0, 3.0])
def test_what_stalls_is_waited_for_three_times_more_at_most_and_again_once_it_answers(promised: float) -> None:
    policy = WaitPolicy()
    steps(policy, 100, 0.02, promised)
    missed = 0
    while policy.should_wait(1.0):
        policy.learn_timeout(1 / 3)
        missed += 1
    assert missed <= 3
    policy.learn_call(0.03)  # what was asked ahead came in that time
    assert policy.should_wait(1.0)


def test_answers_after_the_deadline_do_not_end_a_stall() -> None:
    """Regression: every other step waited for the whole deadline, in vain, where answers took longer than that."""
    policy = WaitPolicy()
    steps(policy, 10, 0.01)
    policy.learn_timeout(0.05)
    waited = 0
    for _ in range(1000):
        policy.learn_call(0.1)  # what was asked ahead
        if policy.should_wait(1.0):
            policy.learn_timeout(0.05)
            waited += 1
    assert 0 < waited * 0.05 <= 0.005 * 1000 + 0.05
    policy.learn_call(0.04)
    assert policy.should_wait(1.0)


def test_what_comes_nearer_is_waited_for_again() -> None:
    policy = WaitPolicy()
    steps(policy, 100, 0.5)
    assert policy.prefetches
    steps(policy, 101, 0.01)
    assert not policy.prefetches
    steps(policy, 100, 5.0)
    assert policy.prefetches
    for _ in range(8):
        policy.learn_call(0.02)  # what was asked ahead came in that time
    assert policy.should_wait(1.0)


def test_foreseen_drafts_that_are_hardly_less_are_enough() -> None:
    waited = []
    for foreseen in (0.95, 0.3):
        policy = WaitPolicy()
        steps(policy, 100, 1.0, foreseen=0.6)  # far, where it is seen what foreseen drafts promise
        steps(policy, 200, 0.3, foreseen=foreseen)
        waited.append(steps(policy, 100, 0.3, foreseen=foreseen))
    assert waited[0] < 10 < 90 < waited[1]


def test_it_waits_where_the_time_of_a_pass_is_not_known_and_until_calls_are_timed() -> None:
    policy = WaitPolicy()
    assert all(policy.should_wait(1.0) for _ in range(10))
    for _ in range(8):
        policy.learn_call(100.0)
    assert policy.should_wait(0.0)
    assert not policy.should_wait(1.0)
