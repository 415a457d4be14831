"""The paths of a draft tree."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.context_query import Tokens
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.retriever import Retriever

_BATCH = 256
"""Paths that are looked up in one call."""


def tree_paths(tree: DraftTree) -> list[list[int]]:
    """The tokens from the context to each node, the node's own included."""
    paths: list[list[int]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else ()), token])
    return paths


def path_counts(store: Retriever, match: Tokens, paths: Sequence[Sequence[int]]) -> list[int]:
    """How often ``store`` holds ``match`` with each of ``paths`` behind it."""
    texts = [[*(int(token) for token in match), *path] for path in paths]
    counts: list[int] = []
    for begin in range(0, len(texts), _BATCH):
        part = texts[begin : begin + _BATCH]
        found = store.lookup_batch(part, max(map(len, part)), 1)
        counts += [each.count if each.length == len(text) else 0 for each, text in zip(found, part, strict=True)]
    return counts
