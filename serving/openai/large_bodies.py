"""Parses bodies of requests. Large ones take turns, because parsing holds Python's lock for up to 0.1 s."""

from __future__ import annotations

from suffolk.serving.engine.turns import Turns
from suffolk.serving.transport import http_body
from suffolk.serving.transport.http_body import Body

LARGE = 1 << 16
"""Bytes of a body that takes a turn."""
_TURNS = Turns(0.1)


def parse_body(kind: type[Body], data: bytes) -> Body:
    """See ``http_body.parse_body``. May wait for up to ten times as long as other large bodies took."""
    with _TURNS.take(len(data) > LARGE):
        return http_body.parse_body(kind, data)
