"""Metrics of datastores and of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.manifest import MANIFEST_NAME
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.identity import OPERATOR, Identity, Role
from suffolk.serving.net.metrics import RequestMetrics
from suffolk.serving.store.draft_service.datastore_metrics import DatastoreMetrics
from suffolk.serving.store.live_store.store import create_live_store
from tests.support.brute_force import BruteForceRetriever
from tests.support.callers import acting_as
from tests.support.draft_server import connected, serving
from tests.support.stores import append_documents, make_store
from tests.support.waiting import until


def registry(stores: Mapping[str, Retriever]) -> CollectorRegistry:
    found = CollectorRegistry()
    found.register(DatastoreMetrics(stores))
    return found


def test_a_watched_datastore(tmp_path: Path) -> None:
    make_store(tmp_path / "wiki", [[[1, 2, 3]]], vocab_size=9).close()
    with WatchedDatastore(tmp_path / "wiki") as store:
        metrics = registry({"acme/wiki": store})

        def value(name: str) -> float | None:
            return metrics.get_sample_value(f"suffolk_datastore_{name}", {"datastore": "acme/wiki"})

        assert (value("generation"), value("tokens"), value("failing")) == (1, 3, 0)
        append_documents(tmp_path / "wiki", [[4, 5]])
        until(lambda: value("generation") == 2)
        assert value("tokens") == 5
        (tmp_path / "wiki" / MANIFEST_NAME).write_bytes(b"{")
        until(lambda: value("failing") == 1)
        assert value("generation") == 2


def test_a_live_store(tmp_path: Path) -> None:
    with create_live_store(tmp_path / "live", vocab_size=9) as store:
        metrics = registry({"live": store})

        def value(name: str) -> float | None:
            return metrics.get_sample_value(f"suffolk_{name}", {"datastore": "live"})

        store.append([1, 2, 3])
        store.append([4, 5], group="g")
        assert (value("live_tokens"), value("live_documents"), value("live_unpublished_documents")) == (5, 2, 2)
        assert (value("live_log_bytes") or 0) > 0
        store.delete(group="g")
        store.flush()
        assert (value("datastore_generation"), value("live_documents"), value("datastore_tokens")) == (1, 0, 3)
        assert (value("datastore_failing"), value("live_evicted_tokens_total")) == (0, 0)


def test_one_behind_a_service_is_left_to_its_server() -> None:
    with serving({"wiki": BruteForceRetriever([[1, 2]], 9)}) as server, connected(server) as remote:
        assert "wiki" not in str(list(DatastoreMetrics({"wiki": remote}).collect()))


def test_calls_are_counted_for_each_datastore() -> None:
    stores = {name: BruteForceRetriever([[1, 2]], 9) for name in ("code", "wiki")}
    with serving(stores) as server, connected(server, "wiki") as wiki:
        wiki.draft([1])
        wiki.draft([2])
        with pytest.raises(InvalidArgument):
            wiki.draft([99])
        with pytest.raises(NotFound), connected(server, "none"):
            pass

        def count(datastore: str, code: str) -> float | None:
            labels = {"datastore": datastore, "method": "Draft", "code": code}
            name = "suffolk_datastore_request_duration_seconds_count"
            return server.service.metrics.registry.get_sample_value(name, labels)

        assert (count("wiki", "OK"), count("wiki", "INVALID_ARGUMENT"), count("code", "OK")) == (2, 1, None)
        assert b'datastore="none"' not in server.service.metrics.exposition()


def test_calls_are_counted_for_each_tenant() -> None:
    metrics = RequestMetrics(AdmissionController(3, "x"), (0.1, 1.0))
    for identity in (Identity("robot", {"acme": Role.READ, "beta": Role.READ}), OPERATOR):
        with acting_as(identity), metrics.measure_call("grpc", "Draft"):
            pass
    with (
        acting_as(Identity("robot", {"acme": Role.READ})),
        pytest.raises(NotFound),
        metrics.measure_call("grpc", "Draft"),
    ):
        raise NotFound("no")

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    draft = {"transport": "grpc", "method": "Draft"}
    assert value("suffolk_requests_total", tenant="acme", code="OK", **draft) == 1
    assert value("suffolk_requests_total", tenant="acme", code="NOT_FOUND", **draft) == 1
    assert value("suffolk_requests_total", tenant="", code="OK", **draft) == 1
    assert value("suffolk_request_duration_seconds_count", tenant="acme", **draft) == 2
    assert value("suffolk_requests_limit") == 3
