"""What a draft server counts, in a registry of its own, ready for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from prometheus_client import Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from suffolk.datastore.datastore import Datastore
from suffolk.datastore.retriever import Retriever
from suffolk.serving.draft_service.memory_metrics import MemoryMetrics
from suffolk.serving.transport.request_metrics import RequestMetrics

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
NODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics(RequestMetrics):
    """Counters, histograms and gauges of one server. Thread-safe."""

    def __init__(self, datastores: Mapping[str, Retriever], in_flight: Callable[[], int]) -> None:
        super().__init__(in_flight, SECONDS)
        registry = self.registry
        self._batches = Histogram(
            "suffolk_batch_size", "Queries in a request", ("method",), buckets=BATCHES, registry=registry
        )
        self._lengths = Tally("suffolk_match_length", "Tokens at a context's end that were found", LENGTHS)
        self._nodes = Tally("suffolk_draft_nodes", "Nodes of a draft tree", NODES)
        registry.register(self._lengths)
        registry.register(self._nodes)
        generation = Gauge(
            "suffolk_datastore_generation", "Generation that is served", ("datastore",), registry=registry
        )
        tokens = Gauge("suffolk_datastore_tokens", "Tokens in the datastore", ("datastore",), registry=registry)
        for name, datastore in datastores.items():
            generation.labels(name).set_function(_fact(datastore, "generation"))
            tokens.labels(name).set_function(_fact(datastore, "tokens"))
        local = {name: store for name, store in datastores.items() if isinstance(store, Datastore)}
        registry.register(MemoryMetrics(local))

    def batch(self, method: str, lengths: list[int], nodes: list[int]) -> None:
        """What a batch of queries found: the match length of each and, for drafts, the nodes of each tree."""
        self._batches.labels(method).observe(len(lengths))
        self._lengths.add(lengths)
        self._nodes.add(nodes)


class Tally(Collector):
    """A histogram that takes many values at once: the library's takes a microsecond and a lock for each."""

    def __init__(self, name: str, help_text: str, bounds: Iterable[int]) -> None:
        self._name = name
        self._help = help_text
        self._bounds = np.array(list(bounds))
        self._lock = threading.Lock()
        self._counts = np.zeros(len(self._bounds) + 1, np.int64)
        self._sum = 0

    def add(self, values: list[int]) -> None:
        places = np.searchsorted(self._bounds, values)
        counts = np.bincount(places, minlength=len(self._counts)) if values else 0
        with self._lock:
            self._counts += counts
            self._sum += sum(values)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        with self._lock:
            totals, total = np.cumsum(self._counts).tolist(), self._sum
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        yield HistogramMetricFamily(self._name, self._help, list(zip(bounds, totals, strict=True)), total)


def _fact(datastore: Retriever, key: str) -> Callable[[], float]:
    return lambda: float(datastore.info()[key])
