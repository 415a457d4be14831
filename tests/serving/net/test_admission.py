"""Which calls a server accepts, and when refused callers are asked to come back."""

from __future__ import annotations

import math

import pytest

from suffolk.datastore.errors import (
    ResourceExhausted,
    Unavailable,
)
from suffolk.serving.net.admission import (
    MAX_RETRY_SECONDS,
    RETRY_SECONDS,
    RETURNS_PER_SECOND,
    AdmissionController,
    Readiness,
    RetryTimes,
    TokenBucket,
)


def test_admission_controller_rejects_calls_beyond_its_limit() -> None:
    admission = AdmissionController(2, "--max-concurrent")
    with admission.admit_call(), admission.admit_call():
        assert admission.in_flight() == 2
        with pytest.raises(
            ResourceExhausted, match="already has 2 calls, its limit; try again later or raise --max-concurrent"
        ):
            admission.admit_call().__enter__()
    assert admission.in_flight() == 0


def test_a_call_may_take_several_places() -> None:
    admission = AdmissionController(3, "--slots")
    with admission.admit_call(2):
        with pytest.raises(
            ResourceExhausted,
            match="already has 2 calls, and its limit of 3 leaves no room for 2 more; try again later",
        ):
            admission.admit_call(2).__enter__()
        with admission.admit_call():
            assert admission.in_flight() == 3
    assert admission.in_flight() == 0


def test_a_closed_controller_rejects_calls_and_waits_for_the_rest() -> None:
    admission = AdmissionController(2, "--slots")
    with admission.admit_call():
        admission.close()
        with pytest.raises(Unavailable, match="the server is stopping"):
            admission.admit_call().__enter__()
        admission.wait_idle(0.01)
        assert admission.in_flight() == 1
    admission.wait_idle(60.0)


def test_a_single_caller_comes_back_soon() -> None:
    now = [100.0]
    times = RetryTimes(lambda: now[0])
    for _ in range(3):
        assert times.next() == pytest.approx(RETRY_SECONDS)
        now[0] += 1.0


def test_callers_do_not_all_come_back_at_once() -> None:
    times = RetryTimes(lambda: 100.0)
    found = [times.next() for _ in range(4 * RETURNS_PER_SECOND)]
    spread = [each for each in found if each < MAX_RETRY_SECONDS]
    gaps = [after - before for before, after in zip(spread, spread[1:], strict=False)]
    assert gaps == pytest.approx([1 / RETURNS_PER_SECOND] * len(gaps))
    assert len(spread) == pytest.approx(RETURNS_PER_SECOND * (MAX_RETRY_SECONDS - RETRY_SECONDS), abs=2)
    assert found[-1] == MAX_RETRY_SECONDS


def test_reasons() -> None:
    ready = Readiness()
    assert (ready.is_set(), ready.reason) == (False, "starting")
    ready.set()
    assert (ready.is_set(), ready.reason) == (True, "")
    ready.clear("the engine has died")
    ready.clear("stopping")
    assert (ready.is_set(), ready.reason) == (False, "the engine has died")


def test_what_is_beyond_the_burst_wait() -> None:
    now = [100.0]
    pace = TokenBucket(10, 20, lambda: now[0])

    def read(size: int) -> float:
        pace.add(-size)
        return pace.take(0)

    assert [read(size) for size in (15, 5, 10, 10)] == [0.0, 0.0, 1.0, 2.0]
    now[0] += 2.0
    assert read(5) == 0.5
    now[0] += 60.0
    assert read(20) == 0.0


def test_only_what_is_needed_is_taken() -> None:
    now = [100.0]
    bucket = TokenBucket(10, 20, lambda: now[0])
    assert bucket.take(15) == 0
    assert bucket.take(15) == bucket.take(100, 15) == 1.0
    now[0] += 1.0
    assert bucket.take(100, 15) == 0
    assert bucket.take(0) == 8.5
    bucket.add(1000)
    assert [bucket.take(20), bucket.take(1)] == [0, 0.1]
    bucket.rate = 0
    assert bucket.take(1) == math.inf
