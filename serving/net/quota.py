"""Quotas of tenants. Counts each tenant's use of a server, and keeps the use within the quota."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated

from suffolk.datastore.errors import ResourceExhausted
from suffolk.datastore.settings import Checked, Within
from suffolk.serving.net.admission import TokenBucket
from suffolk.serving.net.identity import caller

LEAST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.001, 60.0
"""Shortest and longest time after which a caller whose quota is used up is asked to try again."""


Amount = Annotated[float, Within(0)]


@dataclass(frozen=True, slots=True)
class TenantQuota(Checked):
    """The most that one tenant may use. Unset numbers are unlimited. Immutable.

    Attributes:
        calls_per_second: calls, of any method except health checks.
        queries_per_second: contexts of drafts and lookups; on a worker, texts.
        concurrent_calls: calls that run at the same time.
        stored_tokens: tokens of the tenant's live datastores together.
    """

    calls_per_second: Amount = math.inf
    queries_per_second: Amount = math.inf
    concurrent_calls: Amount = math.inf
    stored_tokens: Amount = math.inf


UNLIMITED = TenantQuota()


class QuotaExceeded(ResourceExhausted):
    """A quota is used up."""


class Usage:
    """Counts the calls and queries of one tenant, and refuses calls beyond its quota. Thread-safe.

    Each rate is a token bucket that holds the calls or queries of one second, and at least one. A batch with more queries than
    its bucket can hold passes if the bucket is full. It leaves a debt, so the tenant stays within its rate in the long run.

    Attributes:
        tenant: its name.
        quota: its quota; may be replaced.
        refused: number of refusals by the quota's name.
        running: calls that run now.
    """

    def __init__(
        self, tenant: str, quota: TenantQuota = UNLIMITED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.tenant, self.quota = tenant, quota
        self.refused: Counter[str] = Counter()
        self._clock = clock
        self._lock = threading.Lock()
        self.running = 0
        self._storing = threading.Lock()
        self._reserved = 0
        self._buckets: dict[str, TokenBucket] = {}

    def begin_call(self) -> None:
        """Count a call, until ``end_call``. Raises QuotaExceeded, and then counts nothing."""
        with self._lock:
            if self.running + 1 > self.quota.concurrent_calls:
                self._refuse("concurrent_calls", self.quota.concurrent_calls, f"{self.running} calls run", 1.0)
            self._take("calls_per_second", self.quota.calls_per_second, 1)
            self.running += 1

    def end_call(self) -> None:
        """Count the end of a call that ``begin_call`` admitted."""
        with self._lock:
            self.running -= 1

    def take_queries(self, count: int) -> None:
        """Count queries of a call. Raises QuotaExceeded."""
        with self._lock:
            self._take("queries_per_second", self.quota.queries_per_second, count)

    @contextmanager
    def reserve_tokens(self, added: int, stored: Callable[[], int]) -> Iterator[None]:
        """Reserve room for ``added`` tokens, which the ``with`` block stores. Concurrent blocks each reserve their own
        room.

        Args:
            added: the growth of ``stored``. For 0 or less there is always room.
            stored: counts the tenant's stored tokens. It is called only if the tenant has a quota for them.

        Raises:
            QuotaExceeded: there is no room.
        """
        added = max(0, added)
        with self._storing:
            if added and self.quota.stored_tokens < math.inf:
                held = stored() + self._reserved
                if held + added > self.quota.stored_tokens:
                    text = f"{held} tokens are stored and {added} more would be"
                    with self._lock:
                        self._refuse("stored_tokens", self.quota.stored_tokens, text, MAX_RETRY_SECONDS)
            self._reserved += added
        try:
            yield
        finally:
            with self._storing:
                self._reserved -= added

    def _take(self, name: str, rate: float, count: int) -> None:
        if rate == math.inf:
            return
        most = max(rate, 1.0)
        bucket = self._buckets.setdefault(name, TokenBucket(rate, most, self._clock))
        bucket.rate, bucket.most = rate, most
        if wait := bucket.take(count, min(count, most) if rate else math.inf):
            self._refuse(name, rate, "they are used up", wait)

    def _refuse(self, name: str, limit: float, state: str, retry_seconds: float) -> None:
        self.refused[name] += 1
        seconds = min(max(retry_seconds, LEAST_RETRY_SECONDS), MAX_RETRY_SECONDS)
        text = f"tenant {self.tenant}: its quota {name} is {limit:g}, and {state}; try again in {seconds:.3g} s"
        raise QuotaExceeded(text, retry_seconds=seconds)


class Usages:
    """The usage of each tenant of a server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_tenant: dict[str, Usage] = {}
        self._quotas: dict[str, TenantQuota] = {}

    def set_quotas(self, quotas: dict[str, TenantQuota]) -> None:
        """Replace all quotas. Calls that run stay counted."""
        with self._lock:
            self._quotas = dict(quotas)
            for tenant, usage in self._by_tenant.items():
                usage.quota = quotas.get(tenant, UNLIMITED)

    def of(self, tenant: str) -> Usage:
        """The usage of a tenant."""
        found = self._by_tenant.get(tenant)
        if found is None:
            with self._lock:
                found = self._by_tenant.setdefault(tenant, Usage(tenant, self._quotas.get(tenant, UNLIMITED)))
        return found

    def known(self) -> list[Usage]:
        """The usages of all tenants that have called, or that have a quota."""
        for tenant in list(self._quotas):
            self.of(tenant)
        with self._lock:
            return list(self._by_tenant.values())


_USAGES: ContextVar[Usages] = ContextVar("usages", default=Usages())  # noqa: B039  # without quotas it changes nothing


def usage_of(tenant: str) -> Usage:
    """The usage of a tenant of the server whose request this thread or task serves."""
    return _USAGES.get().of(tenant)


def take_queries(count: int) -> None:
    """Count queries of this call for the caller's tenant. Raises QuotaExceeded."""
    if tenant := caller().tenant:
        usage_of(tenant).take_queries(count)


def set_usages(usages: Usages) -> None:
    """Set the usages for this thread or task, as ``set_caller`` does."""
    _USAGES.set(usages)
