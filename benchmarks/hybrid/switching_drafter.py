"""Drafts from one source per step. A rule chooses a text source or the network."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.benchmarks.hybrid.combined_sources import CombinedSources
from suffolk.benchmarks.hybrid.switching_rules import Rule
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource, merge
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, tree_of


class SwitchingDrafter(CombinedSources):
    """Text sources learn from every step, the network only from steps in which it drafted. Not thread-safe."""

    def __init__(self, name: str, sources: Sequence[RetrievalSource], network: Drafter, rule: Rule) -> None:
        """Takes ownership of the sources: ``close`` closes them."""
        super().__init__(name, sources, network)
        self._rule = rule
        self._drafted: set[int] = set()
        self._switched: dict[str, float] = {"from text": 0, "from the network": 0}

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        found = [source.draft(requests) for source in self._sources]
        names = [source.name for source in self._sources]
        return [
            self._draft(request, dict(zip(names, trees, strict=True)))
            for request, *trees in zip(requests, *found, strict=True)
        ]

    def observe(self, request_id: int, tokens: Ids) -> None:
        for source in self._sources:
            source.observe(request_id, tokens)
        if request_id in self._drafted:
            self._drafted.remove(request_id)
            self._network.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        self._drafted.discard(request_id)
        super().release(request_id)

    def stats(self) -> dict[str, float]:
        """The sums of all counters, and the number of drafts from text and from the network."""
        return self._switched | super().stats()

    def _draft(self, request: DraftRequest, found: dict[str, list[DraftTree]]) -> DraftTree:
        drafts: list[DraftTree] = []

        def network() -> DraftTree:
            if not drafts:
                drafts.append(tree_of(self._network.propose([request])[0]))
                self._drafted.add(request.request_id)
            return drafts[0]

        chosen = self._rule(found, network)
        self._switched["from the network" if chosen is None else "from text"] += 1
        return network() if chosen is None else merge(found[chosen], request.max_nodes)
