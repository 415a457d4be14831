"""Names the extra of a package that is not installed."""

from __future__ import annotations

from suffolk.datastore.errors import Unsupported

WORKER = ("torch", "transformers", "safetensors")


def missing_extra(error: ImportError) -> Unsupported | None:
    """The error for a missing package of the extra ``worker``; None if another module is missing."""
    package = (error.name or "").partition(".")[0]
    if package not in WORKER:
        return None
    return Unsupported(f"{package} is not installed, and models need it; pip install 'suffolk[worker]'")
