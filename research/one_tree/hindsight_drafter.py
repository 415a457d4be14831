"""An upper bound for any merge or choice of sources, computed from the known answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from research.one_tree.combined_sources import CombinedSources
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tree_paths import path_along
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, GeneratedLogits, LogitsDrafter, tree_of

HINDSIGHT = "hindsight"
Path = tuple[Ids, npt.NDArray[np.uint32]]
"""Tokens, and the ids of their sources."""


class HindsightDrafter(CombinedSources):
    """Drafts the longest correct path of its sources, for measurements along recorded answers. Not thread-safe.

    Every step queries all sources. Then it queries the text sources again after the correct tokens, until they add no
    further correct token. No tree can hold more correct tokens from the same drafts. Only a network that drafts after
    retrieved tokens could add more.

    Attributes:
        reads_logits: whether any of its sources reads the target's logits (``LogitsDrafter``).
    """

    def __init__(self, name: str, sources: Sequence[RetrievalSource], network: Drafter) -> None:
        """Takes ownership of the sources: ``close`` closes them."""
        super().__init__(name, sources, network)
        self._learners = [each for each in self._sources if isinstance(each, LogitsDrafter) and each.reads_logits]
        self.reads_logits = bool(self._learners)
        self._text: Ids = np.empty(0, np.int32)

    def know(self, text: Ids) -> None:
        """Set the sequence of the next requests: int32[n], a prompt with its answer."""
        self._text = text

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        """See ``LogitsDrafter``."""
        for learner in self._learners:
            learner.learn_logits(generated)

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> DraftTree:
        answer = self._text[len(request.tokens) :]
        trees = [tree for source in self._sources for tree in source.draft([request])[0]]
        tokens, marks = right([*trees, tree_of(self._network.propose([request])[0])], answer)
        while 0 < len(tokens) < request.max_nodes:
            behind = [tree for source in self._sources for tree in source.draft_after([request], [[tokens]])[0]]
            more, their_marks = right(behind, answer[len(tokens) :])
            if not len(more):
                break
            tokens, marks = np.concatenate([tokens, more]), np.concatenate([marks, their_marks])
        tokens, marks = tokens[: request.max_nodes], marks[: request.max_nodes]
        parents = np.arange(-1, len(tokens) - 1, dtype=np.int32)
        return DraftTree(tokens, parents, np.ones(len(tokens), np.float32), marks)


def right(trees: Sequence[DraftTree], answer: Ids) -> Path:
    """The longest path in any of ``trees`` that is a prefix of ``answer``.

    Merging the trees would give no longer path: a tree that contains a node contains all its ancestors.
    """
    best: Path = np.empty(0, np.int32), np.empty(0, np.uint32)
    for tree in trees:
        path = path_along(tree.tokens, tree.parents, answer)
        if len(path) > len(best[0]):
            best = tree.tokens[path], tree.sources[path]
    return best
