"""What any server of ours counts of its requests, in a registry of its own, ready for Prometheus."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from suffolk.datastore.errors import Internal, SuffolkError
from suffolk.serving.transport.status import grpc_code

LOG = logging.getLogger("suffolk.server")


@dataclass(slots=True)
class Outcome:
    """The name of the gRPC code that a request ended with; what is done inside may know better than the error that it raises."""

    code: str = "OK"


class RequestMetrics:
    """Requests by transport, method and code, refusals, seconds, requests in flight, and the process. Thread-safe.

    Attributes:
        registry: where a service registers what else it counts.
    """

    def __init__(self, in_flight: Callable[[], int], seconds: Sequence[float]) -> None:
        """``seconds``: the buckets of their histogram."""
        labels = ("transport", "method")
        self.registry = CollectorRegistry()
        self._requests = Counter("suffolk_requests", "Requests answered", (*labels, "code"), registry=self.registry)
        self._refused = Counter(
            "suffolk_refused", "Requests refused for want of a place", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "suffolk_request_seconds",
            "Seconds from a request's start to its reply",
            labels,
            buckets=seconds,
            registry=self.registry,
        )
        Gauge("suffolk_in_flight", "Requests being worked on", registry=self.registry).set_function(in_flight)
        ProcessCollector(registry=self.registry)

    def request(self, transport: str, method: str, code: str, seconds: float) -> None:
        """One request is answered; ``code`` is the name of its gRPC code."""
        self._requests.labels(transport, method, code).inc()
        self._seconds.labels(transport, method).observe(seconds)
        if code == "RESOURCE_EXHAUSTED":
            self._refused.labels(transport, method).inc()

    @contextmanager
    def answering(self, transport: str, method: str) -> Iterator[Outcome]:
        """Times and counts what is done inside. Raises SuffolkError alone: our own faults are logged and become Internal."""
        started = time.perf_counter()
        outcome = Outcome()
        try:
            yield outcome
        except SuffolkError as error:
            if outcome.code == "OK":
                outcome.code = grpc_code(error).name
            raise
        except GeneratorExit:  # a stream whose reader went away
            outcome.code = "CANCELLED"
            raise
        except Exception as error:
            LOG.exception("%s over %s failed", method, transport)
            outcome.code = "INTERNAL"
            raise Internal(f"{method}: fault in the server: {type(error).__name__}: {error}; see its log") from error
        finally:
            self.request(transport, method, outcome.code, time.perf_counter() - started)

    def exposition(self) -> bytes:
        """All of it in the text format of Prometheus."""
        return generate_latest(self.registry)
