"""Prometheus metrics of the draft service."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar

import numpy as np
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from suffolk.datastore.retriever import Retriever
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.metrics import RequestMetrics, labelled
from suffolk.serving.store.draft_service.datastore_metrics import DatastoreMetrics

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
NODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_NAMED: ContextVar[tuple[str, ...]] = ContextVar("named_datastores", default=())
"""The datastores that the call of this thread has named so far."""


class DraftMetrics(RequestMetrics):
    """Metrics of calls, batches, matches, trees and datastores. Thread-safe.

    Attributes:
        datastores: the metrics of the datastores.
    """

    def __init__(self, datastores: Mapping[str, Retriever], admission: AdmissionController) -> None:
        super().__init__(admission, SECONDS)
        registry = self.registry
        self._batches = Histogram(
            "suffolk_batch_size", "Queries of a call", ("method",), buckets=BATCHES, registry=registry
        )
        self._lengths = BulkHistogram("suffolk_match_length", "Tokens of the matching suffix of a context", LENGTHS)
        self._nodes = BulkHistogram("suffolk_draft_nodes", "Nodes of a draft tree", NODES)
        registry.register(self._lengths)
        registry.register(self._nodes)
        self._by_datastore = Histogram(
            "suffolk_datastore_request_duration_seconds",
            "Duration of a call that names the datastore",
            ("datastore", "method", "code"),
            buckets=SECONDS,
            registry=registry,
        )
        registry.register(PageFaults())
        self.datastores = DatastoreMetrics(datastores)
        registry.register(self.datastores)

    def count_call(self, transport: str, method: str, code: str, seconds: float) -> None:
        """See ``RequestMetrics``. Also counts the call for each datastore that it named."""
        super().count_call(transport, method, code, seconds)
        for name in _NAMED.get():
            self._by_datastore.labels(name, method, code).observe(seconds)
        _NAMED.set(())

    @staticmethod
    def name_datastore(name: str) -> None:
        """Count the running call of this thread for the datastore ``name``, which exists and which the caller may read."""
        if name not in _NAMED.get():
            _NAMED.set((*_NAMED.get(), name))

    def count_batch(self, method: str, lengths: list[int], nodes: list[int]) -> None:
        """Count a batch: the match length of each query and, for drafts, the nodes of each tree."""
        self._batches.labels(method).observe(len(lengths))
        self._lengths.observe(lengths)
        self._nodes.observe(nodes)


class PageFaults(Collector):
    """``suffolk_page_faults_total`` by kind. Thread-safe."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        faults = [(("major",), usage.ru_majflt), (("minor",), usage.ru_minflt)]
        text = "Page faults; a major one reads the disk"
        yield labelled(CounterMetricFamily, "suffolk_page_faults", text, ("kind",), faults)


class BulkHistogram(Collector):
    """A histogram that takes its lock once for many values.

    The histogram of prometheus_client takes a microsecond per value.
    """

    def __init__(self, name: str, help_text: str, bounds: Sequence[int]) -> None:
        self._name = name
        self._help = help_text
        self._bounds = np.array(bounds)
        self._lock = threading.Lock()
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0

    def observe(self, values: list[int]) -> None:
        buckets = np.searchsorted(self._bounds, values)
        counts = np.bincount(buckets, minlength=len(self._counts)) if values else 0
        with self._lock:
            self._counts += counts
            self._sum += sum(values)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        with self._lock:
            totals, total = np.cumsum(self._counts).tolist(), self._sum
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        yield HistogramMetricFamily(self._name, self._help, list(zip(bounds, totals, strict=True)), total)
