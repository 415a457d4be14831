"""Published rules that choose one source per step: retrieved text or a network.

Adapted to the sources of this repository.

The draft is the chosen source's whole draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from suffolk.datastore.draft_tree import DraftTree

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
