"""The groups of a batch of contexts, as an argument of ``Retriever.draft_batch``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.datastore.retriever import Retriever


def group_argument(retriever: Retriever, groups: Sequence[str | None]) -> dict[str, Any]:
    """``{"group": groups}`` if the retriever has groups and a context has one; else no argument."""
    return {"group": list(groups)} if retriever.has_groups and any(groups) else {}
