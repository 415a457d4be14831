"""The id of the request that a thread or task serves. Logs show it, and calls of other services pass it on."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

HEADER = "x-request-id"
"""HTTP header and gRPC metadata key. A caller may choose the id; otherwise the server makes one."""
_VALID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")


def request_id() -> str:
    """The id of this request; empty outside of requests."""
    return _REQUEST_ID.get()


def begin_request(sent: str | None) -> str:
    """Set the id of this request, and return it: ``sent``, or a new one if that is missing or malformed."""
    name = sent if sent and _VALID.fullmatch(sent) else secrets.token_hex(8)
    _REQUEST_ID.set(name)
    return name
