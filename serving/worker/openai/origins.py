"""Web origins: which web pages may read answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.net.tracing import HEADER

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")


def check_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Return ``origins`` as a tuple. Raises InvalidArgument for an origin that no browser sends."""
    for index, origin in enumerate(origins):
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise InvalidArgument(
                Field("cors_origin"),
                f"[{index}] is {origin!r}; write SCHEME://HOST or SCHEME://HOST:PORT in lower case, or *",
            )
    return tuple(origins)


def allow_origins(origins: Sequence[str]) -> list[Middleware]:
    """The middleware that lets pages of ``origins`` read answers and errors; empty without origins.

    Any header may be sent, because each client has its own headers, and the worker uses only the token. Pages may read the
    headers that clients use, and pages of the internet may call a worker on a private address.
    """
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            allow_private_network=True,
            expose_headers=[HEADER, "retry-after"],
        )
    ]
