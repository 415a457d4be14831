"""Token buckets."""

from __future__ import annotations

import math

from suffolk.serving.net.limits import TokenBucket


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
