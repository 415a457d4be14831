"""Retrieval behind drafted tokens: what followed the text and the likeliest paths of a tree."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.accepted_length import path_to, reach
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.policy.draft_gate import DraftGate, GateDecision

_LEAVES = 4
"""Paths of a tree that are asked about; the likeliest."""
_LEAST = 0.05
"""Chance of a path that is."""

_ADDED = 0.1
"""Tokens that grafts add, until more is known."""


@dataclass(frozen=True, slots=True)
class _Draft:
    before: DraftTree
    grafts: list[DraftTree]


class LeafRetrieval:
    """Asks sources of text behind the best leaves of trees (as Graft and RASD do for neural ones). Not thread-safe.

    Attributes:
        name: of what it does; ``decisions``: of the last step, by the number of the request: whether they were asked.
    """

    name = "grafts"

    def __init__(self, sources: Sequence[RetrievalSource]) -> None:
        self._sources = list(sources)
        self._gate = DraftGate(_ADDED)
        self.decisions: dict[int, GateDecision] = {}
        self._drafts: dict[int, _Draft] = {}

    def add(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> list[list[DraftTree]]:
        """For each request whole trees that go on where ``trees`` end; none where that should not be worth its time."""
        found: list[list[DraftTree]] = [[] for _ in requests]
        leaves = [best_leaves(tree) for tree in trees]
        self.decisions = {
            request.request_id: self._gate.decide(replace(request.budget, expected=float(tree.scores.sum())))
            for request, tree, each in zip(requests, trees, leaves, strict=True)
            if len(each)
        }
        asked = [
            place
            for place, request in enumerate(requests)
            if len(leaves[place]) and self.decisions[request.request_id].run
        ]
        if not asked:
            return found
        begin = time.perf_counter()
        asking = [requests[place] for place in asked]
        paths = [[path_to(trees[place], leaf) for leaf in leaves[place].tolist()] for place in asked]
        words = [[trees[place].tokens[path] for path in each] for place, each in zip(asked, paths, strict=True)]
        for source in self._sources:
            for place, each, subtrees in zip(asked, paths, source.draft_after(asking, words), strict=True):
                grown = zip(each, subtrees, strict=True)
                found[place] += [graft(trees[place], path, more) for path, more in grown if len(more)]
        self._gate.learn_cost((time.perf_counter() - begin) / len(asked))
        for place in asked:
            self._drafts[requests[place].request_id] = _Draft(trees[place], found[place])
        return found

    def observe(self, request_id: int, tokens: Ids) -> None:
        """The target's ``tokens`` followed: learn what the last grafts added."""
        draft = self._drafts.pop(request_id, None)
        if draft is not None:
            most = len(tokens) - 1
            before = min(most, reach(draft.before, tokens))
            whole = max([before, *(min(most, reach(each, tokens)) for each in draft.grafts)])
            self._gate.added.learn(float(draft.before.scores.sum()), whole - before, whole - before)

    def release(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        return {"grafts: asked": self._gate.ran, "grafts: skipped": self._gate.skipped}


def best_leaves(tree: DraftTree) -> npt.NDArray[np.int64]:
    """int64[k], nodes without children: the likeliest of those that are likely at all."""
    inner = np.zeros(len(tree), np.bool_)
    inner[tree.parents[tree.parents >= 0]] = True
    leaves = np.flatnonzero(~inner & (tree.scores >= _LEAST))
    return leaves[np.argsort(-tree.scores[leaves], kind="stable")[:_LEAVES]]


def graft(tree: DraftTree, path: npt.NDArray[np.int64], more: DraftTree) -> DraftTree:
    """``path`` of ``tree`` with ``more`` behind it, whose scores become those of whole paths."""
    depth = len(path)
    return DraftTree(
        np.concatenate([tree.tokens[path], more.tokens]),
        np.concatenate([np.arange(-1, depth - 1, dtype=np.int32), more.parents + np.int32(depth)]).astype(np.int32),
        np.concatenate([tree.scores[path], tree.scores[path[-1]] * more.scores]).astype(np.float32),
        np.concatenate([np.zeros(depth, np.uint32), more.sources]),
    )
