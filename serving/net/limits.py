"""Limits that all servers share."""

from __future__ import annotations

MAX_THREADS = 1024
"""Most CPU threads of a model."""
MAX_METADATA_BYTES = 8 << 10
"""Headers of one call."""
PING_SECONDS = 20.0
"""Seconds between keepalive pings of a client. A server closes a connection that pings much more often."""
MAX_RETRY_SECONDS = 1.0
"""Longest time, unless a quota says another one. A server that stops or starts is tried again after this time, too."""
MAX_ERROR_TEXT = 1024
"""Characters of an error message on the wire, so that it fits into the trailers of a call."""
