"""Traces and request ids, from a caller over the worker to the draft service."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from suffolk.datastore.errors import SuffolkError, Unsupported
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.net import tracing
from suffolk.serving.worker.server import WorkerServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import connected, serving
from tests.support.waiting import HANG, until
from tests.support.worker_server import talking_target, working

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {
    "Content-Type": "application/json",
    "traceparent": f"00-{TRACE}-{PARENT}-01",
    "X-Request-Id": "my-request",
}


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.trace_with(provider)
    try:
        yield exporter
    finally:
        tracing.trace_with(None)


def complete(worker: WorkerServer, headers: dict[str, str]) -> str | None:
    """Generate a text over HTTP; return the request id of the answer."""
    body = json.dumps({"prompt": "abcabcabc", "max_tokens": 8}).encode()
    asked = urllib.request.Request(f"http://{worker.http}/v1/completions", body, headers)
    with urllib.request.urlopen(asked, timeout=HANG) as reply:
        reply.read()
        found: str | None = reply.headers["X-Request-Id"]
        return found


def named(spans: InMemorySpanExporter, part: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if part in span.name]


@pytest.mark.parametrize("prefetch", [False, True])
def test_a_trace_goes_from_the_caller_to_the_draft_service(spans: InMemorySpanExporter, prefetch: bool) -> None:
    target = talking_target()
    store = BruteForceRetriever([list(b"abcabcabcabc")], target.vocab_size)
    with serving({"wiki": store}) as server, connected(server) as remote:
        drafter = DatastoreDrafter(remote, target.vocab_size, prefetch=prefetch)
        with working(target, {"datastore": drafter}) as worker:
            spans.clear()  # of ``connect``
            assert complete(worker, HEADERS) == "my-request"
        until(lambda: len(named(spans, "POST /v1/completions")) == 1)
    [answer] = named(spans, "POST /v1/completions")
    drafts = named(spans, "suffolk.v1.DraftService/Draft")
    assert answer.parent is not None
    assert (f"{answer.context.trace_id:032x}", f"{answer.parent.span_id:016x}") == (TRACE, PARENT)
    calls = {span.context.span_id: span for span in drafts if span.kind.name == "CLIENT"}
    answers = [span for span in drafts if span.kind.name == "SERVER"]
    assert calls
    assert answers
    for call in calls.values():
        assert call.parent is not None
        assert call.parent.span_id == answer.context.span_id
    for each in answers:
        assert each.parent is not None
        assert each.parent.span_id in calls
        assert each.attributes is not None
        assert each.attributes["suffolk.request_id"] == "my-request"
    assert {span.context.trace_id for span in [answer, *drafts]} == {int(TRACE, 16)}


def test_a_failed_call_is_marked(spans: InMemorySpanExporter) -> None:
    with serving({"wiki": BruteForceRetriever([[1, 2]], 9)}) as server, connected(server) as remote:
        server.stop()
        with pytest.raises(SuffolkError):
            remote.draft([1])
    [call] = [span for span in named(spans, "Draft") if span.name.endswith("/Draft")]
    assert call.attributes is not None
    assert (call.status.status_code.name, call.attributes["error.type"]) == ("ERROR", "UNAVAILABLE")


def test_without_tracing_only_the_request_id_travels() -> None:
    assert tracing.trace_id() == ""
    with tracing.server_span("nothing", HEADERS), tracing.start_client_span("Lookup", 1) as span:
        assert span.metadata is None
    target = talking_target()
    with working(target) as worker:
        made = complete(worker, {**HEADERS, "X-Request-Id": "line\tbreak"})
        assert made is not None
        assert len(made) == 16  # a malformed one is replaced


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(Unsupported, match=r"traces need it; pip install 'suffolk\[otel\]'"):
        tracing.start_tracing("suffolk", "http://127.0.0.1:4317")
