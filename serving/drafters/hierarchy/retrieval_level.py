"""Retrieval at the bottom of a hierarchy: the likeliest chain of what sources of text find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hierarchy.draft_segment import Ask, DraftSegment
from suffolk.serving.drafters.hybrid.merge import merge
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.engine.loop.drafter import DraftRequest

_NODES = 4
"""Nodes looked at for each token of a chain."""


class RetrievalLevel:
    """Hands up what followed the text's end, up to its ``tokens``. A fault of a source is counted there. Not thread-safe.

    Attributes:
        name: as in ``StackLevel``; ``tokens``: most to hand up.
        sources: all of them are asked.
    """

    def __init__(self, name: str, sources: Sequence[RetrievalSource], tokens: int) -> None:
        self.name, self.tokens = name, tokens
        self.sources = list(sources)

    def answer(self, requests: Sequence[DraftRequest], asks: Sequence[Ask]) -> list[DraftSegment]:
        """The likeliest chain behind each ``path``. The first asks of a step, and they alone, have empty paths."""
        found: list[DraftSegment | None] = [None] * len(asks)
        for first in (True, False):
            places = [place for place, ask in enumerate(asks) if first is not bool(ask.path)]
            if not places:
                continue
            asked = [replace(requests[place], max_nodes=_NODES * asks[place].count) for place in places]
            paths: list[list[Ids]] = [[np.asarray(asks[place].path, np.int32)] for place in places]
            trees = [source.draft(asked) if first else source.draft_after(asked, paths) for source in self.sources]
            for place, request, *each in zip(places, asked, *trees, strict=True):
                every = [tree for found_of in each for tree in found_of]
                found[place] = likeliest(merge(every, request.max_nodes), asks[place].count)
        return [each for each in found if each is not None]


def likeliest(tree: DraftTree, count: int) -> DraftSegment:
    """The chain of up to ``count`` tokens that takes the best child of each node, with the chance of each behind the one before."""
    tokens: list[int] = []
    chances: list[float] = []
    node, above = -1, 1.0
    while len(tokens) < count:
        children = np.flatnonzero(tree.parents == node)
        if not len(children):
            break
        node = int(children[np.argmax(tree.scores[children])])
        score = float(tree.scores[node])
        tokens.append(int(tree.tokens[node]))
        chances.append(score / above if above > 0 else 0.0)
        above = score
    return DraftSegment(tuple(tokens), np.asarray(chances, np.float64))
