"""Evidence for pooling several sources: their chances of each token that recorded texts continue with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.engine.loop.drafter import Drafter, DraftRequest


@dataclass(frozen=True, slots=True)
class Opinions:
    """Chances by sources of one token of a text.

    Attributes:
        said: source bit -> token -> chance, for each source that proposed any.
        token: the token of the text.
    """

    said: dict[int, dict[int, float]]
    token: int


def opinions_of(trees: Sequence[DraftTree], tokens: Ids) -> list[Opinions]:
    """The opinions on each of ``tokens`` as far as ``trees`` (each of one source) reach, up to the first that none proposed."""
    behind: dict[tuple[int, ...], dict[int, dict[int, float]]] = {}
    for tree in trees:
        paths: list[tuple[int, ...]] = []
        scores = tree.scores.tolist()
        for node, (token, parent, source) in enumerate(
            zip(tree.tokens.tolist(), tree.parents.tolist(), tree.sources.tolist(), strict=True)
        ):
            path, above = (paths[parent], scores[parent]) if parent >= 0 else ((), 1.0)
            paths.append((*path, token))
            if source:
                said = behind.setdefault(path, {}).setdefault(source, {})
                said[token] = max(said.get(token, 0.0), scores[node] / above if above else 0.0)
    found: list[Opinions] = []
    path = ()
    for token in tokens.tolist():
        said_here = behind.get(path)
        if not said_here:
            break
        found.append(Opinions(said_here, token))
        if not any(token in said for said in said_here.values()):
            break
        path = (*path, token)
    return found


def some_sources(evidence: Sequence[Opinions], seed: int) -> list[Opinions]:
    """``evidence``, with a part of it repeated for random subsets of its sources, as where networks do not run."""
    chance = random.Random(seed)
    found = list(evidence)
    for each in evidence:
        kept = {source: said for source, said in each.said.items() if chance.random() < 0.6}
        if 0 < len(kept) < len(each.said):
            found.append(Opinions(kept, each.token))
    return found


class WatchedHybrid(HybridDrafter):
    """A hybrid drafter that keeps its sources' chances of each token that came. Not thread-safe."""

    def __init__(self, sources: Sequence[RetrievalSource], networks: Sequence[Drafter] = ()) -> None:
        """As ``HybridDrafter``."""
        super().__init__(sources, networks)
        self._evidence: list[Opinions] = []
        self._trees: dict[int, list[DraftTree]] = {}

    def take(self) -> list[Opinions]:
        """The evidence since the last call."""
        found, self._evidence = self._evidence, []
        return found

    def merged(self, request: DraftRequest, trees: Sequence[DraftTree]) -> DraftTree:
        self._trees[request.request_id] = list(trees)
        return super().merged(request, trees)

    def observe(self, request_id: int, tokens: Ids) -> None:
        self._evidence += opinions_of(self._trees.pop(request_id, ()), tokens)
        super().observe(request_id, tokens)
