"""Tests a worker's server: graceful stop, a dead engine, metrics, health, info, reflection, TLS, and unix sockets."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client.parser import text_string_to_metric_families

from suffolk.datastore.errors import (
    Internal,
    InvalidArgument,
    SuffolkError,
    Unavailable,
)
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.draft_stats import STAGES
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.worker.client import WorkerClient, connect_worker
from suffolk.serving.worker.server import WorkerServer
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.drafters import MadeUpDrafter, tree
from tests.support.waiting import HANG, until
from tests.support.worker_server import calling, page, talking_target, working

PROMPT = "abcabcabc, abcabc: "
LONG = SamplingSettings(max_new_tokens=3900)


def test_an_engine_that_dies_takes_the_worker_down() -> None:
    target = talking_target()
    with (
        working(target, slots=1, grace=5.0) as server,
        calling(server) as client,
        grpc.insecure_channel(str(server.listening[0])) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        running = client.generate(PROMPT, LONG)
        next(running)
        waiting = client.generate(PROMPT, LONG)
        until(lambda: client.info()["waiting"] == 1)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        target.model.forward = broken
        for generation in (running, waiting):
            with pytest.raises(Internal, match="RuntimeError: the device is gone"):
                list(generation)
        with pytest.raises(Internal, match="the engine has died .*the device is gone.*; start the worker again") as end:
            server.wait()
        assert end.value.exit_code == 1
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert page(server, "/healthz") == (503, "the engine has died\n")
        with pytest.raises(Unavailable, match="the engine has died"):
            next(client.generate(PROMPT))


def broken(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("the device is gone")


def test_stopping_lets_running_calls_finish_within_the_grace(target: Target) -> None:
    with working(target, slots=1, grace=HANG) as server, calling(server) as client:
        generation = client.generate(PROMPT, SamplingSettings(max_new_tokens=200))
        next(generation)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        list(generation)
        assert len(generation.tokens) == 200
        stopping.join(HANG)
        with pytest.raises(Unavailable):
            next(client.generate(PROMPT))


def test_stopping_cancels_calls_that_outlast_the_grace(target: Target) -> None:
    with working(target, slots=1, grace=0.1) as server, calling(server) as client:
        generation = client.generate(PROMPT, LONG)
        next(generation)
        server.stop()
        with pytest.raises(Unavailable):
            list(generation)
        until(lambda: server.service.engine.stats()["running"] == 0)


def test_a_worker_that_ended_has_no_threads(target: Target) -> None:
    """Regression: a thread that outlived the interpreter and held the model used to abort the process."""
    before = set(threading.enumerate())
    with working(target) as server, calling(server) as client:
        list(client.generate(PROMPT, SamplingSettings(max_new_tokens=5)))
        assert server.http is not None
        idle = http.client.HTTPConnection(server.http.host, server.http.port, timeout=HANG)
        idle.request("GET", "/livez")
        assert idle.getresponse().read() == b"ok\n"
        names = {thread.name.partition("-")[0] for thread in set(threading.enumerate()) - before}
        assert names >= {"suffolk", "watch", "http"}
    left = {thread for thread in set(threading.enumerate()) - before if isinstance(thread, threading.Thread)}
    assert [thread for thread in left if "_serve" not in thread.name and "grpc" not in thread.name] == []  # gRPC's own
    idle.close()


def test_metrics_and_health(target: Target) -> None:
    with (
        working(target, {"prompt-lookup": PromptLookupDrafter(target.vocab_size)}) as server,
        calling(server) as client,
    ):
        generation = client.generate([5, 6] * 200, SamplingSettings(max_new_tokens=50))
        list(generation)
        with pytest.raises(InvalidArgument):
            next(client.generate([]))
        until(lambda: server.in_flight() == 0)
        found = counted(server)
        stats = client.info()["stats"]
        assert found["suffolk_generated_tokens_total",] == stats["tokens"] == 50
        for name, metric in (("passes", "target_passes"), ("rows", "target_rows"), ("steps", "decode_steps")):
            assert found[f"suffolk_{metric}_total",] == stats[name] > 0
        assert found["suffolk_requests_finished_total", "length"] == 1
        assert stats["drafted"] == generation.stats.drafted.rows() != []
        for row in stats["drafted"]:
            for stage in STAGES:
                assert found[f"suffolk_draft_tokens_{stage}_total", str(row["depth"]), "prompt-lookup"] == row[stage]
        assert {row["depth"] for row in stats["drafted"]} >= {1, 2}
        assert stats["earned"] == generation.stats.earned == 49 - stats["steps"] > 0
        assert found["suffolk_step_seconds_total", "wait"] > 0
        assert found["suffolk_step_seconds_total", "forward"] > 0
        for gauge in ("running", "waiting", "in_flight"):
            assert found[f"suffolk_requests_{gauge}",] == 0
        assert found["suffolk_kv_cache_bytes",] == server.service.engine.cache_bytes > 0
        assert found["suffolk_requests_total", "OK", "Generate", "grpc"] == 1
        assert found["suffolk_requests_total", "INVALID_ARGUMENT", "Generate", "grpc"] == 1
        for path in ("/healthz", "/readyz", "/livez"):
            assert page(server, path) == (200, "ok\n")
        assert page(server, "/v1/info")[0] == 404


def test_a_running_request_is_counted_as_it_goes(target: Target) -> None:
    """Regression: counters used to grow only when a request ended."""
    drafters = {"made-up": MadeUpDrafter(lambda request: tree([int(request.tokens[-1])], [-1]))}
    with working(target, drafters, slots=1) as server, calling(server) as client:
        generation = client.generate(PROMPT, LONG, "made-up")
        next(generation)
        for _ in range(3):
            before = counted(server)["suffolk_generated_tokens_total",]
            until(lambda before=before: counted(server)["suffolk_generated_tokens_total",] > before)  # type: ignore[misc]
        found = counted(server)
        assert found["suffolk_requests_running",] == 1
        assert found["suffolk_draft_tokens_proposed_total", "1", "datastore"] == found["suffolk_draft_calls_total",] > 0
        assert client.info()["stats"]["requests"] == 0
        generation.cancel()


def counted(server: WorkerServer) -> dict[tuple[str, ...], float]:
    """The worker's metrics by name and label values, in the order of the label names."""
    status, text = page(server, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {
        (each.name, *filter(None, each.labels.values())): each.value for family in families for each in family.samples
    }


def test_worker_info(target: Target, server: WorkerServer, client: WorkerClient) -> None:
    facts = client.info()
    assert facts["model"] == "tiny"
    assert (facts["vocab_size"], facts["context_length"], facts["has_chat_template"]) == (257, 4096, True)
    assert (facts["slots"], facts["capacity"], facts["queue"], facts["max_nodes"]) == (2, 4096, 8, 64)
    assert (facts["drafters"], facts["default_drafter"]) == (["prompt-lookup"], "prompt-lookup")
    assert facts["cache_bytes"] == server.service.engine.cache_bytes


def test_reflection_lists_the_service(server: WorkerServer) -> None:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {
            "suffolk.v1.DecodeService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        assert (
            database.FindFileContainingSymbol("suffolk.v1.DecodeService").name
            == "suffolk/serving/net/proto/decode.proto"
        )
        request = health_pb2.HealthCheckRequest(service="suffolk.v1.DecodeService")
        reply = health_pb2_grpc.HealthStub(channel).Check(request, timeout=HANG)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING


@needs_openssl
def test_tls_and_a_unix_socket(target: Target, tmp_path: Path) -> None:
    folder = make_certificates(tmp_path)
    files = TlsFiles(f"{folder}/server.pem", f"{folder}/server.key", f"{folder}/ca.pem")
    path = Endpoint(path=f"{tmp_path}/w.sock")
    with working(target, listen=(Endpoint("127.0.0.1", 0), path), tls=files) as server:
        shown = f"grpcs://{server.listening[0]}?ca={folder}/ca.pem"
        with_certificate = f"{shown}&cert={folder}/client.pem&key={folder}/client.key"
        for url in (with_certificate, f"grpc+unix://{path.path}"):
            with connect_worker(url) as client:
                assert len(list(client.generate(PROMPT, SamplingSettings(max_new_tokens=2)))) == 2
        for url in (shown, f"grpc://{server.listening[0]}"):
            with connect_worker(url) as client, pytest.raises(SuffolkError):
                client.info()
