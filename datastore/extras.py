"""Names the extra of a package that is not installed."""

from __future__ import annotations

from suffolk.datastore.errors import Unsupported

WORKER = ("torch", "transformers", "safetensors")
_CLUSTERS = ("ray", "aiohttp")


def missing_extra(error: ImportError) -> Unsupported | None:
    """The error for a missing package of the extras ``worker`` and ``ray``; None if another module is missing."""
    package = (error.name or "").partition(".")[0]
    if package not in WORKER + _CLUSTERS:
        return None
    users, extra = ("models", "worker") if package in WORKER else ("clusters", "ray")
    return Unsupported(f"{package} is not installed, and {users} need it; pip install 'suffolk[{extra}]'")
