"""Prometheus metrics that all servers share: calls by transport, method and status code, and tenants' quotas."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from suffolk.datastore.errors import Internal, SuffolkError
from suffolk.datastore.version import __version__
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.call_errors import grpc_code
from suffolk.serving.net.identity import caller
from suffolk.serving.net.logs import log_call
from suffolk.serving.net.quota import TenantQuota, Usages

LOG = logging.getLogger("suffolk.server")
FamilyT = TypeVar("FamilyT", CounterMetricFamily, GaugeMetricFamily)
_REMEMBERED = 4096
"""Combinations of labels whose counter is remembered."""


@dataclass(slots=True)
class CallOutcome:
    """Name of the gRPC status code of a call. A handler may set it; otherwise it follows from the handler's error."""

    code: str = "OK"


class RequestMetrics:
    """Counters and histograms of calls, calls in flight, and the process. Thread-safe.

    Attributes:
        registry: where a service registers further metrics.
    """

    def __init__(self, admission: AdmissionController, buckets: Sequence[float]) -> None:
        """``buckets``: bounds of the duration histogram, in seconds."""
        labels = ("tenant", "transport", "method")
        self.registry = registry = CollectorRegistry()
        requests = Counter("suffolk_requests", "Calls answered", (*labels, "code"), registry=registry)
        rejected = Counter("suffolk_requests_rejected", "Calls answered RESOURCE_EXHAUSTED", labels, registry=registry)
        seconds = Histogram(
            "suffolk_request_duration_seconds", "Duration of a call", labels, buckets=buckets, registry=registry
        )
        Gauge("suffolk_requests_in_flight", "Calls running", registry=registry).set_function(admission.in_flight)
        limit = Gauge("suffolk_requests_limit", "Calls that may run at a time", registry=registry)
        limit.set_function(lambda: admission.max_in_flight)
        build = Info("suffolk_build", "Version of the server", registry=registry)
        build.info({"version": __version__, "python": platform.python_version()})
        remember = lru_cache(_REMEMBERED)  # finding a child by its labels takes microseconds, and a call needs several
        self._requests, self._rejected = remember(requests.labels), remember(rejected.labels)
        self._seconds = remember(seconds.labels)
        ProcessCollector(registry=registry)

    def count_call(self, transport: str, method: str, code: str, seconds: float) -> None:
        """Count and log a finished call of ``caller()``. ``code``: name of its gRPC status code."""
        self._seconds(caller().tenant, transport, method).observe(seconds)
        self.count_answer(transport, method, code, seconds)

    @contextmanager
    def count_refusals(self, transport: str, method: str) -> Iterator[None]:
        """Count errors of the ``with`` block as refusals. The block decides whether a call may begin."""
        try:
            yield
        except SuffolkError as error:
            self.count_answer(transport, method, grpc_code(error).name)
            raise

    def count_answer(self, transport: str, method: str, code: str, seconds: float = 0.0) -> None:
        """Count and log an answer. ``seconds``: duration of the call; 0 for a call that was refused before it began."""
        tenant = caller().tenant
        self._requests(tenant, transport, method, code).inc()
        if code == "RESOURCE_EXHAUSTED":
            self._rejected(tenant, transport, method).inc()
        log_call(transport, method, code, seconds)

    @contextmanager
    def measure_call(self, transport: str, method: str) -> Iterator[CallOutcome]:
        """Time and count the ``with`` block. Raises SuffolkError only: other exceptions are logged and become Internal."""
        started = time.perf_counter()
        outcome = CallOutcome()
        try:
            yield outcome
        except SuffolkError as error:
            if outcome.code == "OK":
                outcome.code = grpc_code(error).name
            raise
        except (GeneratorExit, asyncio.CancelledError):  # the client is gone
            outcome.code = "CANCELLED"
            raise
        except Exception as error:
            LOG.exception("%s over %s failed", method, transport)
            outcome.code = "INTERNAL"
            # the error's own text may hold paths
            raise Internal(f"{method}: fault in the server ({type(error).__name__}); its log says more") from error
        finally:
            self.count_call(transport, method, outcome.code, time.perf_counter() - started)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def labelled(
    kind: type[FamilyT], name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> FamilyT:
    """A family of metrics. ``values``: for each metric, the values of its ``labels``, and its number."""
    family = kind(name, text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


class QuotaMetrics(Collector):
    """Calls of each tenant that run, and refusals of each quota. Thread-safe."""

    def __init__(self, usages: Usages) -> None:
        self._usages = usages

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        usages, names = self._usages.known(), [each.name for each in fields(TenantQuota)]
        running = [((each.tenant,), each.running) for each in usages]
        text = "Calls of a tenant that run"
        yield labelled(GaugeMetricFamily, "suffolk_tenant_calls_in_flight", text, ("tenant",), running)
        refused = [((each.tenant, name), each.refused[name]) for each in usages for name in names]
        text = "Calls refused because a quota is used up"
        yield labelled(CounterMetricFamily, "suffolk_quota_refusals", text, ("tenant", "quota"), refused)
