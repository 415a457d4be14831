"""How others choose between retrieved text and a network, one of them a step, as published; on the sources of this repository.

They are compared with one tree that holds all. Each rule decides; what is then drafted is all that the chosen source has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from suffolk.datastore.draft_tree import DraftTree

Found = Mapping[str, Sequence[DraftTree]]
"""Name of a source of text -> its trees with calibrated scores."""
Rule = Callable[[Found, Callable[[], DraftTree]], str | None]
"""(what was found, what the network drafts, which costs time to ask) -> the source to draft from; None for the network."""

LEAST_MATCH, CORPUS_BIAS = 5, 5
LEAST_PROBABILITY = 0.1


def sam_decoding(found: Found, network: Callable[[], DraftTree]) -> str | None:
    """Text where it matches 5 tokens or more, those of a corpus counted 5 less (SAM-Decoding, Hu et al. 2024)."""
    matches = {name: _match(name, trees) for name, trees in found.items()}
    best = max(matches, key=lambda name: matches[name], default=None)
    return best if best is not None and matches[best] >= LEAST_MATCH else None


def arctic_inference(found: Found, network: Callable[[], DraftTree]) -> str | None:
    """Whoever expects more accepted tokens: text by frequencies, the network by its probabilities; text if they are equal
    (SuffixDecoding, Oliaro et al. 2024, and ArcticInference)."""
    promises = {name: max(map(frequency_score, trees), default=0.0) for name, trees in found.items()}
    best = max(promises, key=lambda name: promises[name], default=None)
    drafted = float(network().scores.sum())
    return best if best is not None and promises[best] > 0 and promises[best] >= drafted else None


def frequency_score(tree: DraftTree) -> float:
    """Tokens that a tree promises by its counts alone: the sum of the shares in which its paths followed the match, of paths no
    longer than the match and not rarer than ``LEAST_PROBABILITY``."""
    if tree.counts is None or not tree.match_count:
        return 0.0
    shares = tree.counts / tree.match_count
    return float(shares[(tree.depths() <= tree.match_length) & (shares >= LEAST_PROBABILITY)].sum())


def _match(name: str, trees: Sequence[DraftTree]) -> int:
    longest = int(np.max([tree.match_length for tree in trees], initial=0))
    return longest if name == "prompt-lookup" else longest - CORPUS_BIAS
