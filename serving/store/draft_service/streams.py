"""Places for streams of appends."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.net.admission import MAX_RETRY_SECONDS
from suffolk.serving.net.identity import Role, caller
from suffolk.serving.net.metrics import RequestMetrics

MAX_STREAMS = 4
"""Streams of appends at a time."""
MAX_TENANT_STREAMS = 2
"""Streams of appends of one tenant at a time."""
FIRST_MESSAGE_SECONDS = 5.0
"""Seconds within which the first message of a stream must arrive."""
STREAM_SECONDS = 60.0
"""Seconds that a stream of appends may be silent."""


class StreamPlaces:
    """Bounds the streams that a server reads at a time, over gRPC and HTTP together. Thread-safe."""

    def __init__(self, metrics: RequestMetrics) -> None:
        """``metrics``: counts refused streams."""
        self._metrics = metrics
        self._open: Counter[str] = Counter()  # by tenant
        self._lock = threading.Lock()

    @contextmanager
    def take(self, transport: str) -> Iterator[None]:
        """Occupy a place for ``caller()`` during the block.

        Raises:
            PermissionDenied: the caller may append in no tenant.
            ResourceExhausted: all places, or all places of the caller's tenant, are taken.
        """
        tenant = caller().tenant
        with self._metrics.count_refusals(transport, "AppendStream"), self._lock:
            caller().require_anywhere(Role.APPEND)
            self._require_room(tenant)
            self._open[tenant] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[tenant] -= 1

    def _require_room(self, tenant: str) -> None:
        for whose, count, limit in (
            ("", self._open.total(), MAX_STREAMS),
            (f" of tenant {tenant}", self._open[tenant] if tenant else 0, MAX_TENANT_STREAMS),
        ):
            if count >= limit:
                text = f"the server already reads {count} streams{whose}, its limit; try again later or use Append"
                raise ResourceExhausted(text, retry_seconds=MAX_RETRY_SECONDS)
