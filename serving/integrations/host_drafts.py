"""A retrieval source for the drafts of the host's own drafter, so that they are merged with retrieved drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated
from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate

SOURCE = 1 << 31
"""The source bit of the host's nodes."""
_PRIOR = 0.6
"""Prior probability that a host's token is accepted if its parent was."""
Ids = npt.NDArray[np.int32]


class HostDrafts(RetrievalSource):
    """The host's chains. The hybrid drafter merges them with retrieved trees. Not thread-safe.

    The host gives tokens without probabilities. So a score is the product of the learned acceptance at each depth.
    No continuations of a chain are retrieved, because in measurements they added no accepted tokens (docs/how-to/vllm.md).
    """

    name = "host"

    def __init__(self) -> None:
        self._rates: list[Estimate] = []  # by depth, of tokens whose parent was accepted
        self._chains: dict[int, Ids] = {}

    def give(self, chains: Mapping[int, Sequence[int]]) -> None:
        """Set the host's chains of this step, by request."""
        self._chains = {number: np.asarray(chain, np.int32) for number, chain in chains.items() if len(chain)}

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        return [[self._tree(each)] for each in requests]

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """Return empty lists: the host drafts only after the text, not after paths."""
        return [[DraftTree.empty()] * len(each) for each in paths]

    def observe(self, generated: Generated) -> None:
        for number, tokens in generated.items():
            chain = self._chains.pop(number, tokens[:0])
            for rate, drafted, token in zip(self._rates, chain.tolist(), tokens.tolist(), strict=False):
                rate.add(drafted == token)
                if drafted != token:
                    break

    def release(self, request_id: int) -> None:
        self._chains.pop(request_id, None)

    def stats(self) -> dict[str, float]:
        """The learned acceptance at each depth."""
        return {f"acceptance_{depth}": rate.value for depth, rate in enumerate(self._rates, 1)}

    def close(self) -> None:
        self._chains.clear()

    def _tree(self, request: DraftRequest) -> DraftTree:
        chain = self._chains.get(request.request_id)
        if chain is None:
            return DraftTree.empty()
        size = len(chain)
        self._rates += [Estimate(_PRIOR) for _ in range(size - len(self._rates))]
        scores = np.cumprod([rate.value for rate in self._rates[:size]], dtype=np.float32)
        return DraftTree(chain, np.arange(-1, size - 1, dtype=np.int32), scores, np.full(size, SOURCE, np.uint32))
