"""The paths of a draft tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.context_query import Tokens
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import DeadlineExceeded
from suffolk.datastore.retriever import Retriever

Ids = npt.NDArray[np.integer[Any]]
_BATCH = 256
"""Paths that are looked up in one call."""


class Paths(NamedTuple):
    """Continuations of one context as a tree: token and parent of each node, int32[n] each, parents first. -1: no parent."""

    tokens: npt.NDArray[np.int32]
    parents: npt.NDArray[np.int32]


def tree_paths(tree: DraftTree | Paths) -> list[list[int]]:
    """For each node, the tokens after the context on the path to the node, its own token included."""
    paths: list[list[int]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else ()), token])
    return paths


def path_along(tokens: Ids, parents: Ids, text: Ids) -> npt.NDArray[np.int64]:
    """Return int64[k], the nodes on the longest path from the root that agrees with ``text``. Of equal siblings the first is used.

    ``tokens`` and ``parents``: the columns of a tree; a child of the root has the parent -1.
    """
    columns = (np.asarray(each, np.int32) for each in (tokens, parents, text))
    return _native.path_along(*columns)


def accepted_length(trees: Sequence[DraftTree], text: Ids) -> int:
    """Length of the longest beginning of ``text`` that is a path from the root of one of ``trees``."""
    return _native.accepted_lengths([(_native.Drafts([trees]), 0, np.asarray(text, np.int32))])[0]


def path_counts(
    store: Retriever, match: Tokens, paths: Sequence[Sequence[int]], expired: Callable[[], bool] = lambda: False
) -> list[int]:
    """Count how often ``store`` holds ``match`` followed by each of ``paths``. ``match`` and a path may not both be empty.

    Raises DeadlineExceeded if ``expired`` returns True before all paths are counted.
    """
    known = [int(token) for token in match]
    counts: list[int] = []
    for begin in range(0, len(paths), _BATCH):
        if expired():
            raise DeadlineExceeded("the deadline passed before all counts were known; allow more time")
        texts = [[*known, *path] for path in paths[begin : begin + _BATCH]]
        found = store.lookup_batch(texts, max(map(len, texts)), min(map(len, texts)))
        counts += [each.count if each.length == len(text) else 0 for each, text in zip(found, texts, strict=True)]
    return counts
