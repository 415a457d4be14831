"""Counts failed drafts by reason."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

log = logging.getLogger(__name__)
PREFIX = "failed "


class DraftFailures:
    """A drafter's failed drafts, by reason. The first of each reason is logged. Not thread-safe.

    Attributes:
        by_reason: failed drafts by the name of the error.
    """

    def __init__(self, drafter: str) -> None:
        """``drafter``: its name in messages."""
        self.by_reason: Counter[str] = Counter()
        self._drafter = drafter

    def add(self, reason: str, message: str, drafts: int = 1) -> None:
        """Count ``drafts`` failed drafts; ``message`` explains the first of each reason in the log."""
        if not self.by_reason[reason]:
            log.warning("%s: %s; continuing without its drafts", self._drafter, message)
        self.by_reason[reason] += drafts

    def stats(self) -> dict[str, float]:
        """The total number, and the number for each reason, in the form of ``Drafter.stats``."""
        return failure_stats(self.by_reason)


def failure_stats(by_reason: Counter[str]) -> dict[str, float]:
    """``by_reason`` in the form of ``Drafter.stats``."""
    stats: dict[str, float] = {f"{PREFIX}{reason}": count for reason, count in by_reason.items()}
    return {"failed": by_reason.total()} | stats


def failures_by_reason(stats: Mapping[str, float]) -> Counter[str]:
    """Failed drafts by reason, from a drafter's ``stats``: the inverse of ``failure_stats``."""
    return Counter({key.removeprefix(PREFIX): int(count) for key, count in stats.items() if key.startswith(PREFIX)})
