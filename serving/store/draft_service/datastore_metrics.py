"""Prometheus metrics of the datastores that a process serves or drafts from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from suffolk.datastore.appendable import LiveStats
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.retriever import AsyncRetriever, Retriever
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.net.metrics import FamilyT, labelled
from suffolk.serving.store.live_store.store import LiveStore
from suffolk.serving.store.replication.replicated_store import ReplicatedStore

LIVE_GAUGES = {
    "tokens": ("suffolk_live_tokens", "Tokens in memory"),
    "documents": ("suffolk_live_documents", "Documents in memory"),
    "bytes": ("suffolk_live_bytes", "Memory of the live index"),
    "segments": ("suffolk_live_segments", "Segments that a query searches"),
    "merge_debt_tokens": ("suffolk_live_merge_debt_tokens", "Tokens in running and due merges"),
    "log_bytes": ("suffolk_live_log_bytes", "Size of the write-ahead log"),
    "unsynced_bytes": ("suffolk_live_log_unsynced_bytes", "Bytes of the log that a power loss may lose"),
}
"""Field of ``LiveStats`` -> name and help text of its gauge."""
LIVE_COUNTERS = {
    "merged_tokens": ("suffolk_live_merged_tokens", "Tokens that merges wrote"),
    "evicted_documents": ("suffolk_live_evicted_documents", "Documents that bounds and time to live removed"),
    "evicted_tokens": ("suffolk_live_evicted_tokens", "Tokens that bounds and time to live removed"),
}
REPLICA_GAUGES: Mapping[str, tuple[str, Callable[[ReplicatedStore], float | None]]] = {
    "leads": ("1: changes begin at this copy", lambda store: store.feed.leads),
    "in_sync": ("1: the copy has everything acknowledged, as far as it knows", lambda store: store.status().in_sync),
    "epoch": ("Last epoch that the copy knows of", lambda store: store.member.entry.value.epoch),
    "followers": (
        "Followers of a leader that have everything",
        lambda store: store.feed.followers() if store.feed.leads else None,
    ),
    "unconfirmed_changes": (
        "Changes of a leader that its slowest follower has not confirmed",
        lambda store: store.feed.behind() if store.feed.leads else None,
    ),
    "lag_seconds": (
        "Time since a follower last had everything that its leader had",
        lambda store: None if store.feed.leads else store.member.lag_seconds(),
    ),
    "lag_changes": (
        "Changes that a follower lacked when its leader's last message arrived",
        lambda store: None if store.feed.leads else store.member.lag_changes,
    ),
}
"""Name of a gauge -> its help text, and a function that returns a copy's value or None."""


class DatastoreMetrics(Collector):
    """Generation, size and faults of each datastore, and the state of live datastores. Thread-safe.

    Linux reports resident bytes only for files of the server's own user; other datastores are left out.
    """

    def __init__(self, datastores: Mapping[str, Retriever]) -> None:
        """``datastores``: label -> datastore. Datastores behind a draft service are left out: their own server reports them."""
        self._datastores = {name: store for name, store in datastores.items() if not isinstance(store, AsyncRetriever)}

    def add(self, name: str, datastore: Retriever) -> None:
        """Report one more datastore."""
        self._datastores = {**self._datastores, name: datastore}

    def collect(self) -> Iterator[Metric]:
        infos = {name: store.info() for name, store in self._datastores.items()}
        for key, text in (("generation", "Generation that is served"), ("tokens", "Tokens in the datastore")):
            values = {name: info[key] for name, info in infos.items()}
            yield _family(GaugeMetricFamily, f"suffolk_datastore_{key}", text, values)
        stats = {label: store.stats() for label, store in self._datastores.items() if isinstance(store, LiveStore)}
        resident, failing = dict[str, float](), dict[str, float]()
        for name, store in self._datastores.items():
            if isinstance(store, Datastore | WatchedDatastore) and (size := store.resident_bytes()) is not None:
                resident[name] = size
            if isinstance(store, WatchedDatastore | LiveStore):
                failing[name] = bool(store.problem)
        failing |= {label: 1.0 for label, each in stats.items() if each.log_failure or each.background_error}
        text = "Bytes of the datastore's segments in memory"
        yield _family(GaugeMetricFamily, "suffolk_datastore_resident_bytes", text, resident)
        text = "1: the published generation, its copy from storage, or the log, cannot be used"
        yield _family(GaugeMetricFamily, "suffolk_datastore_failing", text, failing)
        yield from self._live(stats)
        yield from self._copies()

    def _live(self, stats: Mapping[str, LiveStats]) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for field, (name, text) in LIVE_GAUGES.items():
            values = {label: getattr(each, field) for label, each in stats.items()}
            yield _family(GaugeMetricFamily, name, text, values)
        # a copy publishes nothing, and its sequences have gaps
        own = {label: each for label, each in stats.items() if not isinstance(self._datastores[label], ReplicatedStore)}
        waiting = {label: each.next_sequence - 1 - each.flushed_sequence for label, each in own.items()}
        text = "Documents and removals since the last published one"
        yield _family(GaugeMetricFamily, "suffolk_live_unpublished_documents", text, waiting)
        for field, (name, text) in LIVE_COUNTERS.items():
            values = {label: getattr(each, field) for label, each in stats.items()}
            yield _family(CounterMetricFamily, name, text, values)

    def _copies(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        copies = {label: store for label, store in self._datastores.items() if isinstance(store, ReplicatedStore)}
        if not copies:
            return
        for name, (text, read) in REPLICA_GAUGES.items():
            values = {label: read(store) for label, store in copies.items()}
            known = {label: value for label, value in values.items() if value is not None}
            yield _family(GaugeMetricFamily, f"suffolk_replica_{name}", text, known)
        text = "Comparisons with another copy that had other documents"
        differences = {label: store.member.differences for label, store in copies.items()}
        yield _family(CounterMetricFamily, "suffolk_replica_differences", text, differences)


def _family(kind: type[FamilyT], name: str, text: str, values: Mapping[str, float]) -> FamilyT:
    """``values``: the metric's values, by datastore."""
    return labelled(kind, name, text, ("datastore",), [((label,), value) for label, value in values.items()])
