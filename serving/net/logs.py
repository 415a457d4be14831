"""Logs of a server: as text, or as one JSON object a line."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone

from suffolk.serving.net.identity import caller
from suffolk.serving.net.tracing import request_id, trace_id

FORMATS = ("text", "json")
REQUESTS = logging.getLogger("suffolk.requests")
"""Logs one line for each finished call, if ``configure_logs`` turned that on."""


def configure_logs(form: str = "text", requests: bool = False) -> None:
    """Send the logs of this process to stderr.

    Args:
        form: one of FORMATS.
        requests: whether to log every finished call.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter("suffolk: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # at INFO, the first two log where they find credentials, and torch logs counts of its caches at exit
    for library in ("aiobotocore", "botocore", "torch"):
        logging.getLogger(library).setLevel(logging.WARNING)
    set_log_requests(requests)


def set_log_requests(on: bool) -> None:
    """Log every finished call from now on, or none."""
    REQUESTS.setLevel(logging.INFO if on else logging.WARNING)


def log_call(transport: str, method: str, code: str, seconds: float) -> None:
    """Log a finished call. ``code``: name of its gRPC status code."""
    if REQUESTS.isEnabledFor(logging.INFO):
        milliseconds = round(seconds * 1000, 3)
        fields = {"transport": transport, "method": method, "code": code, "milliseconds": milliseconds}
        REQUESTS.info(
            "%s over %s: %s in %.1f ms, request %s",
            *(method, transport, code, milliseconds, request_id()),
            extra={"fields": {**fields, "caller": caller().name}},
        )


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and if known request_id, trace_id and exception."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": request_id(),
            "trace_id": trace_id(),
            "exception": self.formatException(record.exc_info) if record.exc_info else "",
            **getattr(record, "fields", {}),
        }
        return json.dumps({key: value for key, value in entry.items() if value != ""})
