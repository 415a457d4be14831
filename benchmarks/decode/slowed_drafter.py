"""Slows a drafter down, to measure the time lost before the step loop stops calling it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest, Proposal


def slow_down(drafter: Drafter, seconds: float) -> None:
    """Adds ``seconds`` to every draft call."""
    propose = drafter.propose

    def proposing(requests: Sequence[DraftRequest]) -> Sequence[Proposal]:
        time.sleep(seconds)
        return propose(requests)

    setattr(drafter, "propose", proposing)  # noqa: B010 - a wrapper would hide what else the drafter can do
