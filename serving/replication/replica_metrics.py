"""Prometheus metrics of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from suffolk.serving.replication.replica import ReplicaStore

GAUGES: Mapping[str, tuple[str, Callable[[ReplicaStore], float | None]]] = {
    "leads": ("1: changes begin at this copy", lambda store: store.feed.leads),
    "in_step": ("1: the copy has everything acknowledged, as far as it knows", lambda store: store.status().in_step),
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
"""Name -> help text, and the value for a replica, or None."""


def replica_metrics(stores: Mapping[str, object]) -> Iterator[Metric]:
    """The metrics of the replicas among ``stores``, which are by their label; none if there are none."""
    replicas = {label: store for label, store in stores.items() if isinstance(store, ReplicaStore)}
    if not replicas:
        return
    for name, (text, read) in GAUGES.items():
        family = GaugeMetricFamily(f"suffolk_replica_{name}", text, labels=("datastore",))
        for label, store in replicas.items():
            if (value := read(store)) is not None:
                family.add_metric((label,), value)
        yield family
    differences = CounterMetricFamily(
        "suffolk_replica_differences", "Comparisons with another copy that had other documents", labels=("datastore",)
    )
    for label, store in replicas.items():
        differences.add_metric((label,), store.member.differences)
    yield differences
