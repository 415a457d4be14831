"""Spans of calls, if tracing is on. The trace context travels in the W3C header ``traceparent``, over HTTP and gRPC.

Needs the extra ``otel``. While tracing is off, nothing of OpenTelemetry is imported, and no span costs anything.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from suffolk.datastore.errors import SuffolkError, Unsupported
from suffolk.datastore.version import __version__
from suffolk.serving.net.call_errors import grpc_code

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

HEADER = "x-request-id"
"""HTTP header and gRPC metadata key. A caller may choose the id; otherwise the server makes one."""
_VALID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
Metadata = tuple[tuple[str, str], ...]
_tracer: Any = None
"""Makes spans; None while tracing is off."""


def request_id() -> str:
    """The id of this request; empty outside of requests."""
    return _REQUEST_ID.get()


def begin_request(sent: str | None) -> str:
    """Set the id of this request, and return it. The id is ``sent``, or a new one if ``sent`` is missing or
    malformed."""
    name = sent if sent and _VALID.fullmatch(sent) else secrets.token_hex(8)
    _REQUEST_ID.set(name)
    return name


def start_tracing(service: str, endpoint: str) -> None:
    """Send the spans of this process to a collector.

    Args:
        service: name of this service in traces.
        endpoint: URL of the collector's OTLP endpoint over gRPC, such as http://127.0.0.1:4317.

    Raises:
        Unsupported: the extra ``otel`` is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise Unsupported(f"{error.name} is not installed, and traces need it; pip install 'suffolk[otel]'") from None
    provider = TracerProvider(resource=Resource.create({"service.name": service, "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, insecure=endpoint.startswith("http://"))))
    trace_with(provider)


def trace_with(provider: TracerProvider | None) -> None:
    """Make spans with ``provider``; None turns tracing off."""
    global _tracer
    _tracer = None if provider is None else provider.get_tracer("suffolk", __version__)


def trace_id() -> str:
    """The id of the running trace as 32 hex digits; empty if there is none."""
    if _tracer is None:
        return ""
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return f"{found.trace_id:032x}" if found.is_valid else ""


@contextmanager
def server_span(name: str, headers: Mapping[str, str]) -> Iterator[None]:
    """A span of a call that this process answers, within the trace that ``headers`` name."""
    if _tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract(headers)
    attributes = {"suffolk.request_id": request_id()}
    with _tracer.start_as_current_span(name, context, SpanKind.SERVER, attributes, record_exception=False):
        yield


class ClientSpan:
    """A span of a call of another service. It ends with its ``with`` block, or with ``end`` in any thread.

    Attributes:
        metadata: what to send with the call: trace and request id, if there are any, else None.
    """

    def __init__(self, span: Any, metadata: Metadata | None) -> None:
        self._span = span
        self.metadata = metadata

    def __enter__(self) -> ClientSpan:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.end(error)

    def end(self, error: BaseException | None = None) -> None:
        """End the span. ``error``: what the call raised; its gRPC status code marks the span."""
        if self._span is None:
            return
        if error is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_status(StatusCode.ERROR)
            code = grpc_code(error).name if isinstance(error, SuffolkError) else "UNKNOWN"
            self._span.set_attribute("error.type", code)
        self._span.end()


def start_client_span(method: str, queries: int) -> ClientSpan:
    """A span of a call of the draft service with this many queries, within the running trace."""
    known: Metadata = ((HEADER, request_id()),) if request_id() else ()
    if _tracer is None:
        return ClientSpan(None, known or None)
    from opentelemetry.trace import SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    name = f"suffolk.v1.DraftService/{method}"
    span = _tracer.start_span(name, kind=SpanKind.CLIENT, attributes={"suffolk.queries": queries})
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return ClientSpan(span, (*known, *carrier.items()))
