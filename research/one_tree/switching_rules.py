"""Published rules that choose one source per step, retrieved text or a network, and the drafter that follows them.

Adapted to the sources of this repository.

The draft is the chosen source's whole draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from research.one_tree.combined_sources import CombinedSources
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_source import RetrievalSource, merge
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, Generated, tree_of

Found = Mapping[str, Sequence[DraftTree]]
"""Map from the name of a text source to its trees with calibrated scores."""
Rule = Callable[[Found, Callable[[], DraftTree]], str | None]
"""Takes the trees of text sources, and a function that runs the network.

Returns the name of the chosen text source, or None for the network.
"""

LEAST_MATCH, CORPUS_BIAS = 5, 5
LEAST_PROBABILITY = 0.1


def sam_decoding(found: Found, network: Callable[[], DraftTree]) -> str | None:
    """Choose text if it matches 5 tokens or more.

    The length of a corpus match is reduced by 5 (SAM-Decoding, Hu et al. 2024).
    """
    matches = {name: _match(name, trees) for name, trees in found.items()}
    best = max(matches, key=lambda name: matches[name], default=None)
    return best if best is not None and matches[best] >= LEAST_MATCH else None


def arctic_inference(found: Found, network: Callable[[], DraftTree]) -> str | None:
    """Choose the source with more expected accepted tokens, and text on a tie.

    Text is rated by frequencies, the network by its probabilities (SuffixDecoding, Oliaro et al. 2024, and
    ArcticInference).
    """
    lengths = {name: max(map(frequency_score, trees), default=0.0) for name, trees in found.items()}
    best = max(lengths, key=lambda name: lengths[name], default=None)
    drafted = float(network().scores.sum())
    return best if best is not None and lengths[best] > 0 and lengths[best] >= drafted else None


def frequency_score(tree: DraftTree) -> float:
    """Expected accepted tokens of a tree, from counts only: the sum of its nodes' shares of the match's occurrences.

    Paths longer than the match or rarer than ``LEAST_PROBABILITY`` do not count.
    """
    if tree.counts is None or not tree.match_count:
        return 0.0
    shares = tree.counts / tree.match_count
    return float(shares[(tree.depths() <= tree.match_length) & (shares >= LEAST_PROBABILITY)].sum())


def _match(name: str, trees: Sequence[DraftTree]) -> int:
    longest = int(np.max([tree.match_length for tree in trees], initial=0))
    return longest if name == "prompt-lookup" else longest - CORPUS_BIAS


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

    def observe(self, generated: Generated) -> None:
        for source in self._sources:
            source.observe(generated)
        self._network.observe({each: tokens for each, tokens in generated.items() if each in self._drafted})
        self._drafted.difference_update(generated)

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
