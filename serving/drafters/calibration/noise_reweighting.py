"""Reweights retrieved tokens by the sampling noise of the target (csrc/drafting/noise_reweighting.h).

Measured gain: 4.1 % of M for the datastore at temperature 1 (commit 57eea60; see ``docs/design/measured-drafting.md``).
"""

from __future__ import annotations

from dataclasses import replace

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.sampling.settings import SamplingSettings

BREADTH, ENOUGH = 4, 64
"""Nodes to look up, as a multiple of those that may be proposed, and the most by this multiple: the noise chooses among them."""


def knows_noise(settings: SamplingSettings) -> bool:
    """Whether seeded noise alone decides which token the target samples.

    Under ``rejection`` and ``typical`` other random numbers decide too, and with one candidate left noise decides nothing.
    """
    return settings.temperature > 0 and settings.top_k != 1 and settings.verification == "match"


def with_noise(request: DraftRequest, tree: DraftTree, above: int) -> DraftTree:
    """Reweight the scores of ``tree`` by the request's sampling noise; ``above``: drafted tokens between text and tree.

    Siblings may add up to more than their parent.

    Raises:
        InvalidArgument: the tree is malformed, or a score is outside 0..1 or above its parent's.
    """
    settings, position = request.settings, len(request.tokens) + above
    scores = _native.reweight_scores(
        tree.tokens, tree.parents, tree.scores, tree.sources, position, settings.seed, settings.temperature
    )
    return replace(tree, scores=scores)
