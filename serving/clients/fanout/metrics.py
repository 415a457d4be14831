"""Prometheus metrics of datastores that several servers serve, as their caller sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from suffolk.datastore.retriever import Retriever
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.clients.fanout.replica_client import ReplicaClient

_LABELS = ("datastore", "shard", "replica")
_COUNTERS: tuple[tuple[str, str, Callable[[ReplicaClient], int]], ...] = (
    ("suffolk_replica_calls", "Drafts and lookups sent to the server", lambda replica: replica.counts.calls),
    ("suffolk_replica_errors", "Calls that failed, or that took too long", lambda replica: replica.counts.errors),
    (
        "suffolk_replica_hedges",
        "Calls sent to the server because another one was late",
        lambda replica: replica.counts.hedges,
    ),
    ("suffolk_replica_ejections", "Times that the server was ejected", lambda replica: replica.ejections),
)


class FanoutMetrics(Collector):
    """Calls, errors, hedges, ejections and state of each server. Thread-safe."""

    def __init__(self, datastores: Iterable[Retriever]) -> None:
        """``datastores``: those with one server, or with none, are left out."""
        self._datastores = [store for store in datastores if isinstance(store, FanoutDatastore)]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        replicas = [
            ((store.name, str(number), replica.label), replica)
            for store in self._datastores
            for number, shard in enumerate(store.servers.shards)
            for replica in shard
        ]
        for name, text, value in _COUNTERS:
            family = CounterMetricFamily(name, text, labels=_LABELS)
            for labels, replica in replicas:
                family.add_metric(labels, value(replica))
            yield family
        partial = CounterMetricFamily(
            "suffolk_partial_answers", "Answers that may lack text, by reason", labels=("datastore", "reason")
        )
        for store in self._datastores:
            for reason, count in store.servers.partial.items():
                partial.add_metric((store.name, reason), count)
        yield partial
        up = GaugeMetricFamily("suffolk_replica_up", "1: the server gets calls; 0: it is ejected", labels=_LABELS)
        for labels, replica in replicas:
            up.add_metric(labels, replica.is_up)
        yield up
