"""Text sources and a network that are measured as one drafter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.loop.drafter import CacheDrafter, Drafter, FeatureDrafter, Generated

if TYPE_CHECKING:
    import torch

    from suffolk.serving.decoding.engine.model.kv_cache import KVCache


class CombinedSources:
    """Passes the calls of a ``Drafter`` on to all sources. Subclasses add ``propose``. Not thread-safe.

    Attributes:
        name: name of this drafter.
        layers: layers of the target whose hidden states its network reads (``FeatureDrafter``).
    """

    def __init__(self, name: str, sources: Sequence[RetrievalSource], network: Drafter) -> None:
        """Takes ownership of the sources: ``close`` closes them."""
        self.name = name
        self.layers = network.layers if isinstance(network, FeatureDrafter) else ()
        self._sources = list(sources)
        self._network = network
        self._all: list[Drafter] = [*self._sources, network]

    def attach(self, cache: KVCache) -> None:
        """See ``CacheDrafter``."""
        if isinstance(self._network, CacheDrafter):
            self._network.attach(cache)

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        """See ``FeatureDrafter``."""
        if isinstance(self._network, FeatureDrafter):
            self._network.follow(request_id, features)

    def observe(self, generated: Generated) -> None:
        for each in self._all:
            each.observe(generated)

    def release(self, request_id: int) -> None:
        for each in self._all:
            each.release(request_id)

    def stats(self) -> dict[str, float]:
        """The sums of all sources' counters."""
        total: dict[str, float] = {}
        for each in self._all:
            for key, value in each.stats().items():
                total[key] = total.get(key, 0) + value
        return total

    def close(self) -> None:
        for each in self._all:
            each.close()
