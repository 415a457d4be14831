"""When refused callers are asked to come back."""

from __future__ import annotations

import pytest

from suffolk.datastore.errors import InvalidArgument, ResourceExhausted, Unavailable
from suffolk.serving.net.admission import RETRY_SECONDS, RETURNS_PER_SECOND, RetryTimes
from suffolk.serving.net.call_errors import RETRY_KEY, retry_seconds, retry_trailer, sent_retry_seconds
from suffolk.serving.net.limits import MAX_RETRY_SECONDS


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


def test_the_trailer_says_what_the_error_says() -> None:
    for error, seconds in (
        (ResourceExhausted("full", retry_seconds=0.25), 0.25),
        (ResourceExhausted("too large"), None),
        (Unavailable("stopping"), MAX_RETRY_SECONDS),
        (InvalidArgument("wrong"), None),
    ):
        assert retry_seconds(error) == sent_retry_seconds(retry_trailer(retry_seconds(error))) == seconds


@pytest.mark.parametrize("metadata", [None, (), (("other", "5"),), ((RETRY_KEY, "x"),), ((RETRY_KEY, "-1"),)])
def test_other_trailers_say_nothing(metadata: object) -> None:
    assert sent_retry_seconds(metadata) is None
