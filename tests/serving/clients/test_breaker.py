"""Tests the circuit breaker."""

from __future__ import annotations

from suffolk.serving.clients.breaker import CircuitBreaker
from suffolk.serving.net.channel import MAX_BACKOFF_SECONDS


def test_breaker_opens_probes_and_closes() -> None:
    now = [0.0]
    breaker = CircuitBreaker(max_failures=3, retry_seconds=1.0, clock=lambda: now[0])
    for _ in range(2):
        assert breaker.allows_call()
        breaker.record_failure()
    breaker.record_success()
    for _ in range(3):
        assert breaker.allows_call()
        breaker.record_failure()
    assert breaker.is_open()
    assert not breaker.allows_call()
    now[0] = 1.0
    assert breaker.allows_call()  # the probe, whose caller never reports
    assert not breaker.allows_call()
    now[0] = 2.0
    assert breaker.allows_call()
    breaker.record_failure()
    now[0] = 2.9
    assert not breaker.allows_call()
    now[0] = 3.0
    assert breaker.allows_call()
    breaker.record_success()
    assert not breaker.is_open()
    assert breaker.allows_call()


def test_a_service_that_is_back_is_noticed_within_two_seconds() -> None:
    now = [0.0]
    breaker = CircuitBreaker(clock=lambda: now[0])
    while not breaker.is_open():
        breaker.record_failure()
    for _ in range(3):  # the server is back just after a failed probe; the next probe opens a connection
        begin = now[0]
        while not breaker.allows_call():
            now[0] += 0.01
        assert now[0] - begin + 1.2 * MAX_BACKOFF_SECONDS < 2
        breaker.record_failure()
