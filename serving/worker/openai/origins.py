"""Web origins: which web pages may read answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from suffolk.datastore.errors import Field, InvalidArgument

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
