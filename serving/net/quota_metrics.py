"""Prometheus metrics of tenants' quotas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from suffolk.serving.net.quota import Quota
from suffolk.serving.net.usage import Usages


class QuotaMetrics(Collector):
    """Calls of each tenant that run, and refusals of each quota. Thread-safe."""

    def __init__(self, usages: Usages) -> None:
        self._usages = usages

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        running = GaugeMetricFamily("suffolk_tenant_calls_in_flight", "Calls of a tenant that run", labels=("tenant",))
        refused = CounterMetricFamily(
            "suffolk_quota_refusals", "Calls refused because a quota is used up", labels=("tenant", "quota")
        )
        for usage in self._usages.known():
            running.add_metric((usage.tenant,), usage.running)
            for each in fields(Quota):
                refused.add_metric((usage.tenant, each.name), usage.refused[each.name])
        yield running
        yield refused
