"""The groups of a batch of contexts, as an argument of ``Retriever.find_drafts``."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.context_query import Groups
from suffolk.datastore.retriever import Retriever


def group_argument(retriever: Retriever, groups: Sequence[str | None]) -> Groups:
    """``groups`` if the retriever has groups and a context has one; else None."""
    return groups if retriever.has_groups and any(groups) else None
