"""Parses the JSON that a server's GetInfo returns."""

from __future__ import annotations

import json
from typing import Any

from suffolk.datastore.errors import Internal


def parse_server_info(url: str, server: str, text: str) -> dict[str, Any]:
    """``text`` as a dict. Raises Internal if it is not a JSON object. ``server``: "draft service" or "worker"."""
    try:
        info = json.loads(text)
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise Internal(f"{url}: the {server} sent server info that is not a JSON object")
    return info
