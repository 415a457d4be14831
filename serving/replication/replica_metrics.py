"""Prometheus metrics of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from suffolk.serving.replication.replica import ReplicaStore

GAUGES: Mapping[str, tuple[str, Callable[[ReplicaStore], float | None]]] = {
    "leads": ("1: changes begin at this copy", lambda store: store.feed.leads),
    "epoch": ("Last epoch in which the copy leads, follows, or was fenced", lambda store: store.state.epoch),
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
        lambda store: None if store.feed.leads else store.lag.seconds(),
    ),
    "lag_changes": (
        "Changes that a follower lacked when its leader's last message arrived",
        lambda store: None if store.feed.leads else store.lag.changes,
    ),
}
"""Name -> help text, and the value for a replica, or None."""


def replica_metrics(stores: Mapping[str, object]) -> Iterator[GaugeMetricFamily]:
    """The metrics of the replicas among ``stores``, which are by their label; none if there are none."""
    replicas = {label: store for label, store in stores.items() if isinstance(store, ReplicaStore)}
    for name, (text, read) in GAUGES.items() if replicas else ():
        family = GaugeMetricFamily(f"suffolk_replica_{name}", text, labels=("datastore",))
        for label, store in replicas.items():
            if (value := read(store)) is not None:
                family.add_metric((label,), value)
        yield family
