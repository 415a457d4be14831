"""Reweights retrieved tokens by the target's sampling noise (csrc/drafting/noise_reweighting.h).

Measured gain: 4.1 % of M for the datastore at temperature 1 (commit 57eea60; see ``docs/design/measured-drafting.md``).
"""

from __future__ import annotations

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

BREADTH, ENOUGH = 4, 64
"""Nodes to look up for each node that may be proposed, and the most nodes that this factor may give."""


def knows_noise(settings: SamplingSettings) -> bool:
    """Whether the target's seeded noise decides which token is sampled.

    Under ``rejection`` and ``typical``, other random numbers decide too. At temperature 0 and at top_k 1, nothing is random.
    """
    return settings.temperature > 0 and settings.top_k != 1 and settings.verification == "match"


def with_noise(request: DraftRequest, tree: DraftTree, above: int) -> DraftTree:
    """Reweight the scores of ``tree`` by the request's sampling noise. ``above``: drafted tokens between the text and ``tree``.

    The scores of siblings may add up to more than their parent's score.

    Raises:
        InvalidArgument: the tree is malformed, or a score is outside 0..1 or above its parent's.
    """
    settings, position = request.settings, len(request.tokens) + above
    return tree.with_scores(_native.reweight_scores(tree, position, settings.seed, settings.temperature))
