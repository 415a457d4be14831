"""Quotas of tenants."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.net.quota import MAX_RETRY_SECONDS, QuotaExceeded, TenantQuota, Usage, Usages


def refused(work: Callable[[], None]) -> QuotaExceeded:
    with pytest.raises(ResourceExhausted) as caught:
        work()
    assert isinstance(caught.value, QuotaExceeded)
    return caught.value


def test_calls_come_at_the_rate_of_the_quota() -> None:
    now = [0.0]
    usage = Usage("acme", TenantQuota(calls_per_second=10), lambda: now[0])
    admitted = 0
    for _ in range(1000):  # ten seconds of 100 calls a second: ten times the quota
        with suppress(QuotaExceeded):
            usage.begin_call()
            admitted += 1
            usage.end_call()
        now[0] += 0.01
    assert 10 * 10 <= admitted <= 10 * 10 + 10  # one second's worth at the start
    assert usage.refused["calls_per_second"] == 1000 - admitted
    now[0] += 100.0
    for _ in range(10):
        usage.begin_call()
    error = refused(usage.begin_call)
    assert str(error) == "tenant acme: its quota calls_per_second is 10, and they are used up; try again in 0.1 s"
    now[0] += error.retry_seconds + 1e-6
    usage.begin_call()


def test_a_batch_above_the_bucket_leaves_a_debt() -> None:
    now = [0.0]
    usage = Usage("acme", TenantQuota(queries_per_second=10), lambda: now[0])
    usage.take_queries(100)
    assert refused(lambda: usage.take_queries(1)).retry_seconds == pytest.approx(9.1)
    now[0] += 9.2
    usage.take_queries(1)
    refused(lambda: usage.take_queries(5))


def test_concurrent_calls_and_stored_tokens() -> None:
    usage = Usage("acme", TenantQuota(concurrent_calls=2, stored_tokens=100))
    usage.begin_call()
    usage.begin_call()
    assert "its quota concurrent_calls is 2, and 2 calls run" in str(refused(usage.begin_call))
    assert usage.running == 2
    usage.end_call()
    usage.begin_call()
    stored = [60]

    def store(tokens: int) -> None:
        with usage.reserve_tokens(tokens, lambda: stored[0]):
            stored[0] += tokens

    assert "60 tokens are stored and 41 more would be" in str(refused(lambda: store(41)))
    store(40)
    store(-5)
    store(0)
    store(5)
    assert dict(usage.refused) == {"concurrent_calls": 1, "stored_tokens": 1}


def test_appends_at_the_same_time_are_within_the_quota() -> None:
    """Regression: both were accepted, because neither had stored its tokens yet."""
    usage = Usage("acme", TenantQuota(stored_tokens=100))
    with usage.reserve_tokens(60, lambda: 0):
        assert "60 tokens are stored and 60 more would be" in str(
            refused(lambda: usage.reserve_tokens(60, lambda: 0).__enter__())
        )
        with usage.reserve_tokens(40, lambda: 0):
            pass
    with pytest.raises(ZeroDivisionError), usage.reserve_tokens(60, lambda: 0):
        raise ZeroDivisionError
    with usage.reserve_tokens(100, lambda: 0):
        pass


def test_a_quota_of_0_refuses_everything() -> None:
    usage = Usage("acme", TenantQuota(calls_per_second=0))
    assert refused(usage.begin_call).retry_seconds == MAX_RETRY_SECONDS
    assert refused(Usage("acme", TenantQuota(concurrent_calls=0)).begin_call)


def test_quotas_may_change_while_calls_run() -> None:
    usages = Usages()
    usages.of("acme").begin_call()
    usages.set_quotas({"acme": TenantQuota(concurrent_calls=1), "beta": TenantQuota()})
    refused(usages.of("acme").begin_call)
    usages.of("gamma").begin_call()
    assert sorted(each.tenant for each in usages.known()) == ["acme", "beta", "gamma"]
    usages.set_quotas({})
    usages.of("acme").begin_call()
    assert usages.of("acme").running == 2
