"""Collects evidence for pooling several sources: their probabilities of each token of recorded answers."""

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
class TokenEvidence:
    """The probabilities that sources give to tokens at one place of an answer.

    Attributes:
        by_source: source bit -> token -> probability, for each source that proposed a token.
        token: the actual token of the answer.
    """

    by_source: dict[int, dict[int, float]]
    token: int


def collect_evidence(trees: Sequence[DraftTree], tokens: Ids) -> list[TokenEvidence]:
    """Return the evidence at each of ``tokens`` that ``trees`` cover, up to the first token that no tree proposes.

    Each tree comes from one source.
    """
    after: dict[tuple[int, ...], dict[int, dict[int, float]]] = {}
    for tree in trees:
        paths: list[tuple[int, ...]] = []
        scores = tree.scores.tolist()
        for node, (token, parent, source) in enumerate(
            zip(tree.tokens.tolist(), tree.parents.tolist(), tree.sources.tolist(), strict=True)
        ):
            path, above = (paths[parent], scores[parent]) if parent >= 0 else ((), 1.0)
            paths.append((*path, token))
            if source:
                probs = after.setdefault(path, {}).setdefault(source, {})
                probs[token] = max(probs.get(token, 0.0), scores[node] / above if above else 0.0)
    found: list[TokenEvidence] = []
    path = ()
    for token in tokens.tolist():
        by_source = after.get(path)
        if not by_source:
            break
        found.append(TokenEvidence(by_source, token))
        if not any(token in probs for probs in by_source.values()):
            break
        path = (*path, token)
    return found


def some_sources(evidence: Sequence[TokenEvidence]) -> list[TokenEvidence]:
    """Return ``evidence``, and part of it again with random subsets of sources, as in steps without networks."""
    chance = random.Random(0)
    found = list(evidence)
    for each in evidence:
        kept = {source: probs for source, probs in each.by_source.items() if chance.random() < 0.6}
        if 0 < len(kept) < len(each.by_source):
            found.append(TokenEvidence(kept, each.token))
    return found


class WatchedHybrid(HybridDrafter):
    """A hybrid drafter that records its sources' probabilities of each generated token. Not thread-safe."""

    def __init__(self, sources: Sequence[RetrievalSource], networks: Sequence[Drafter] = ()) -> None:
        """Takes the arguments of ``HybridDrafter``."""
        super().__init__(sources, networks)
        self._evidence: list[TokenEvidence] = []
        self._trees: dict[int, list[DraftTree]] = {}

    def take(self) -> list[TokenEvidence]:
        """Return the evidence since the last call."""
        found, self._evidence = self._evidence, []
        return found

    def merged(self, request: DraftRequest, trees: Sequence[DraftTree]) -> DraftTree:
        self._trees[request.request_id] = list(trees)
        return super().merged(request, trees)

    def observe(self, request_id: int, tokens: Ids) -> None:
        self._evidence += collect_evidence(self._trees.pop(request_id, ()), tokens)
        super().observe(request_id, tokens)
