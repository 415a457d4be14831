"""Retrieval as the bottom level of a hierarchy. It drafts the most likely chain of its sources' trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.rescale import conditional_probs
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import DraftSegment, LevelQuery
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource, merge
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

_NODES = 4
"""Nodes looked up for each token of a chain."""


class RetrievalLevel:
    """Drafts up to ``tokens`` tokens by retrieval. Each source counts its own failures. Not thread-safe.

    Attributes:
        name: as in ``StackLevel``.
        tokens: the most tokens of a draft.
        sources: the retrieval sources. All of them are searched.
    """

    def __init__(self, name: str, sources: Sequence[RetrievalSource], tokens: int) -> None:
        self.name, self.tokens = name, tokens
        self.sources = list(sources)

    def answer(self, requests: Sequence[DraftRequest], queries: Sequence[LevelQuery]) -> list[DraftSegment]:
        """The most likely chain after the path of each query. Only the first queries of a step have empty paths."""
        found: dict[int, DraftSegment] = {}
        for first in (True, False):
            places = [place for place, query in enumerate(queries) if first is not bool(query.path)]
            if not places:
                continue
            asked = [replace(requests[place], max_nodes=_NODES * queries[place].count) for place in places]
            paths: list[list[Ids]] = [[np.asarray(queries[place].path, np.int32)] for place in places]
            trees = [source.draft(asked) if first else source.draft_after(asked, paths) for source in self.sources]
            for place, request, *each in zip(places, asked, *trees, strict=True):
                every = [tree for of_source in each for tree in of_source]
                found[place] = best_chain(merge(every, request.max_nodes), queries[place].count)
        return [found[place] for place in range(len(queries))]


def best_chain(tree: DraftTree, count: int) -> DraftSegment:
    """The best child of the root, its best child, and so on: up to ``count`` tokens with their conditional probabilities."""
    nodes: list[int] = []
    node = -1
    while len(nodes) < count:
        children = np.flatnonzero(tree.parents == node)
        if not len(children):
            break
        node = int(children[np.argmax(tree.scores[children])])
        nodes.append(node)
    return DraftSegment(tuple(tree.tokens[nodes].tolist()), conditional_probs(tree)[nodes])
