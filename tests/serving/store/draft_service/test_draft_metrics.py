"""Tests the metrics of the draft service."""

from __future__ import annotations

from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.store.draft_service.metrics import DraftMetrics
from tests.support.brute_force import BruteForceRetriever

VOCABULARY = 50


def test_metrics_count_in_bulk() -> None:
    metrics = DraftMetrics(
        {"wiki": BruteForceRetriever([[1, 2, 3]], VOCABULARY)}, AdmissionController(5, "--max-concurrent")
    )
    metrics.count_batch("Draft", [0, 1, 16, 300], [0, 64, 1, 2])
    metrics.count_batch("Lookup", [], [])
    metrics.count_call("grpc", "Draft", "RESOURCE_EXHAUSTED", 0.003)
    lines = metrics.exposition().decode().splitlines()
    for line in (
        'suffolk_match_length_bucket{le="0.0"} 1.0',
        'suffolk_match_length_bucket{le="1.0"} 2.0',
        'suffolk_match_length_bucket{le="64.0"} 3.0',
        'suffolk_match_length_bucket{le="+Inf"} 4.0',
        "suffolk_match_length_count 4.0",
        "suffolk_match_length_sum 317.0",
        "suffolk_draft_nodes_sum 67.0",
        'suffolk_batch_size_sum{method="Draft"} 4.0',
        'suffolk_requests_total{code="RESOURCE_EXHAUSTED",method="Draft",tenant="",transport="grpc"} 1.0',
        'suffolk_requests_rejected_total{method="Draft",tenant="",transport="grpc"} 1.0',
        'suffolk_request_duration_seconds_bucket{le="0.005",method="Draft",tenant="",transport="grpc"} 1.0',
        "suffolk_requests_in_flight 0.0",
        'suffolk_datastore_generation{datastore="wiki"} 7.0',
        'suffolk_datastore_tokens{datastore="wiki"} 3.0',
    ):
        assert line in lines
