"""Prometheus metrics of page faults and of resident bytes per datastore."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from suffolk.datastore.datastore import Datastore


class MemoryMetrics(Collector):
    """``suffolk_page_faults_total`` by kind, and ``suffolk_datastore_resident_bytes``. Thread-safe.

    Linux reports resident bytes only for files of the server's own user; other datastores are left out.
    """

    def __init__(self, datastores: Mapping[str, Datastore]) -> None:
        self._datastores = dict(datastores)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        faults = CounterMetricFamily("suffolk_page_faults", "Page faults; a major one reads the disk", labels=("kind",))
        faults.add_metric(("major",), usage.ru_majflt)
        faults.add_metric(("minor",), usage.ru_minflt)
        yield faults
        resident = GaugeMetricFamily(
            "suffolk_datastore_resident_bytes", "Bytes of the datastore's segments in memory", labels=("datastore",)
        )
        for name, datastore in self._datastores.items():
            if (size := datastore.resident_bytes()) is not None:
                resident.add_metric((name,), size)
        yield resident
