"""Merges draft trees whose scores are on one scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datastore.draft_tree import DraftTree


def merge(trees: Sequence[DraftTree], max_nodes: int) -> DraftTree:
    """The trie of all ``trees``, sorted by falling score with parents first, cut to ``max_nodes``.

    A path that several propose is one node with all their marks and the highest of their scores: the sources read related
    text, so their agreement is no independent evidence, and the highest keeps a child's score at most its parent's.
    """
    filled = [tree for tree in trees if len(tree)]
    if len(filled) < 2:
        return filled[0].head(max_nodes) if filled else DraftTree.empty()
    children: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    scores: list[float] = []
    sources: list[int] = []
    for tree in filled:
        rows: list[int] = []
        columns = (tree.tokens.tolist(), tree.parents.tolist(), tree.scores.tolist(), tree.sources.tolist())
        for token, parent, score, source in zip(*columns, strict=True):
            above = rows[parent] if parent >= 0 else -1
            row = children.setdefault((above, token), len(tokens))
            if row == len(tokens):
                tokens.append(token)
                parents.append(above)
                scores.append(score)
                sources.append(source)
            else:
                scores[row] = max(scores[row], score)
                sources[row] |= source
            rows.append(row)
    return _sorted(tokens, parents, scores, sources, max_nodes)


def _sorted(
    tokens: list[int], parents: list[int], scores: list[float], sources: list[int], max_nodes: int
) -> DraftTree:
    values = np.asarray(scores, np.float32)
    order = np.argsort(-values, kind="stable")  # stable: of equals, parents stay first
    row = np.empty(len(order) + 1, np.int32)
    row[order] = np.arange(len(order), dtype=np.int32)
    row[-1] = -1  # where parent -1 points
    order = order[:max_nodes]
    return DraftTree(
        np.asarray(tokens, np.int32)[order],
        row[np.asarray(parents, np.int32)[order]],
        values[order],
        np.asarray(sources, np.uint8)[order],
    )
