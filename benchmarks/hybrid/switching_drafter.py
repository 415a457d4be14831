"""Drafts from one source per step. A rule chooses a text source or the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from suffolk.benchmarks.hybrid.switching_rules import Rule
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.merge import merge
from suffolk.serving.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.engine.loop.drafter import CacheDrafter, Drafter, DraftRequest, FeatureDrafter, tree_of

if TYPE_CHECKING:
    import torch

    from suffolk.serving.engine.model.kv_cache import KVCache


class SwitchingDrafter:
    """Text sources learn from every step, the network only from steps in which it drafted. Not thread-safe.

    Attributes:
        name: name of this drafter.
        layers: layers of the target whose hidden states its network reads (``FeatureDrafter``).
    """

    def __init__(self, name: str, sources: Sequence[RetrievalSource], network: Drafter, rule: Rule) -> None:
        """Takes ownership of the sources: ``close`` closes them."""
        self.name = name
        self.layers = network.layers if isinstance(network, FeatureDrafter) else ()
        self._sources = list(sources)
        self._network = network
        self._rule = rule
        self._drafted: set[int] = set()
        self._switched = {"from text": 0, "from the network": 0}

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        if isinstance(self._network, CacheDrafter):
            self._network.attach(cache)

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """See ``FeatureDrafter``."""
        if isinstance(self._network, FeatureDrafter):
            self._network.follow(request_id, features)

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        found = [source.draft(requests) for source in self._sources]
        names = [source.name for source in self._sources]
        return [
            self._draft(request, dict(zip(names, trees, strict=True)))
            for request, *trees in zip(requests, *found, strict=True)
        ]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        for source in self._sources:
            source.observe(request_id, tokens)
        if request_id in self._drafted:
            self._drafted.remove(request_id)
            self._network.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        self._drafted.discard(request_id)
        for each in (*self._sources, self._network):
            each.release(request_id)

    def stats(self) -> dict[str, float]:
        """The sums of all counters, and the number of drafts from text and from the network."""
        total: dict[str, float] = dict(self._switched)
        for each in (*self._sources, self._network):
            for key, value in each.stats().items():
                total[key] = total.get(key, 0) + value
        return total

    def close(self) -> None:
        for each in (*self._sources, self._network):
            each.close()

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
