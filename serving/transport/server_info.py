"""What a server says of itself, as JSON in a reply."""

from __future__ import annotations

import json
from typing import Any

from suffolk.datastore.errors import Internal


def read_facts(url: str, server: str, text: str) -> dict[str, Any]:
    """The object that ``text`` is. Raises Internal if it is none; ``server``: what sent it, "draft service" or "worker"."""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise Internal(f"{url}: the {server} sent facts that are no JSON object")
    return facts
