"""Removes drafted tokens that the request's grammar forbids, so that no pass verifies them."""

from __future__ import annotations

import numpy as np

from suffolk.serving.decoding.engine.loop.drafter import Proposal, SampledChain, tree_of
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.tree_layout import select


def permitted_draft(request: Request, proposal: Proposal) -> Proposal:
    """``proposal`` without nodes that cannot be accepted because of the grammar of ``request``.

    A sampled chain keeps its first forbidden token, which the target rejects. A cut before this token would change the
    distribution.

    Raises:
        InvalidArgument: the grammar fails on the drafted tokens, or on the committed text.
    """
    tree = tree_of(proposal)
    if request.matcher is None or not len(tree):
        return proposal
    allowed = request.matcher.allowed(request.contexts(tree))[1:]
    if isinstance(proposal, SampledChain) and not allowed.all():
        size = int(np.argmin(allowed)) + 1
        return SampledChain(tree.head(size), proposal.distributions[:size])
    return proposal if isinstance(proposal, SampledChain) else select(tree, allowed)
