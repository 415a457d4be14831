"""The bounds that all our services share, and how a number is held against its own.

All checks raise InvalidArgument with the field, its value, the limit and what to do. They hold no state.
"""

from __future__ import annotations

from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import MAX_NODES as MAX_NODES

MAX_NAME = 128
"""Characters of the name of a datastore, a drafter or a role."""
MAX_THREADS = 1024
"""CPU threads of a model."""
MAX_METADATA_BYTES = 8 << 10
"""Size of the headers of one call."""
PING_SECONDS = 20.0
"""Between the pings of a client; a server hangs up on one that pings far more often."""
MAX_ERROR_TEXT = 1024
"""Characters of an error's message on the wire, so that it always fits into the trailers."""


def check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidArgument(f"{field} is {value}; it must be in {low}..{high}")


def check_deadline(seconds: float, most: float) -> None:
    if not 0 < seconds <= most:
        raise InvalidArgument(f"deadline is {seconds:g} s; it must be above 0 and at most {most:g}")
