"""Reweights retrieved tokens by the sampling noise of the target (csrc/drafting/noise_reweighting.h)."""

from __future__ import annotations

from dataclasses import replace

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.sampling.settings import SamplingSettings

BREADTH, ENOUGH = 4, 64
"""Times as many nodes are looked up as may be proposed, as the noise chooses among them; more than the second only if as many may
be proposed."""


def knows_noise(settings: SamplingSettings) -> bool:
    """Whether all that the target takes is drawn with noise that can be known beforehand. Under ``rejection`` and ``typical`` other
    things decide too, and nothing was fitted; where one token alone is left, noise decides nothing."""
    return settings.temperature > 0 and settings.top_k != 1 and settings.verification == "match"


def with_noise(request: DraftRequest, tree: DraftTree, above: int) -> DraftTree:
    """``tree``, which hangs behind ``above`` tokens more than the request's, with the scores that its nodes have once the noise of
    the request's draws is known. Siblings may add up to more than their parent: at most one of them is drawn, but which is not
    known.

    Raises:
        InvalidArgument: it is no tree, or a score is not within 0..1 or above its parent's.
    """
    settings, position = request.settings, len(request.tokens) + above
    scores = _native.reweight_scores(
        tree.tokens, tree.parents, tree.scores, tree.sources, position, settings.seed, settings.temperature
    )
    return replace(tree, scores=scores)
