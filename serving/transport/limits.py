"""Limits that all servers share, and range checks. Checks raise InvalidArgument with the field, its value and the limit."""

from __future__ import annotations

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.retriever import MAX_NODES as MAX_NODES

MAX_NAME = 128
"""Characters of the name of a datastore, a drafter or a role."""
MAX_THREADS = 1024
"""Most CPU threads of a model."""
MAX_METADATA_BYTES = 8 << 10
"""Headers of one call."""
PING_SECONDS = 20.0
"""Seconds between keepalive pings of a client. A server closes a connection that pings much more often."""
MAX_ERROR_TEXT = 1024
"""Characters of an error message on the wire, so that it fits into the trailers of a call."""


def check_range(field: str, value: int, low: int, high: int, of: str = "") -> None:
    """``of``: what ``value`` is of the field, for the message."""
    if not low <= value <= high:
        raise InvalidArgument(Field(field), f"{of} is {value}; it must be in {low}..{high}")


def check_size(field: str, size: int, limit: int, unit: str, remedy: str = "") -> None:
    """``unit``: unit of ``size``, for example "tokens". ``remedy``: what to do, for the message."""
    if size > limit:
        raise InvalidArgument(Field(field), f" has {size} {unit}; the limit is {limit}{remedy and '; '}{remedy}")


def check_deadline(seconds: float, limit: float) -> None:
    if not 0 < seconds <= limit:
        raise InvalidArgument(Field("deadline"), f" is {seconds:g} s; it must be above 0 and at most {limit:g}")
