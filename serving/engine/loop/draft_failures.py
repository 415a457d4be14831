"""Drafts that could not be made: counted, and said once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

log = logging.getLogger(__name__)
PREFIX = "missed "


class DraftFailures:
    """Drafts that a drafter owes because of a fault, by reason. The first of each reason is logged. Not thread-safe.

    Attributes:
        by_reason: how many, by the name of an error.
    """

    def __init__(self, drafter: str) -> None:
        """``drafter``: how messages call it."""
        self.by_reason: Counter[str] = Counter()
        self._drafter = drafter

    def add(self, reason: str, message: str, drafts: int = 1) -> None:
        """``drafts`` more are missed."""
        if not self.by_reason[reason]:
            log.warning("%s: %s; going on without its drafts", self._drafter, message)
        self.by_reason[reason] += drafts

    def stats(self) -> dict[str, float]:
        """Their number, and that of each reason, as ``Drafter.stats`` has them."""
        return missed_stats(self.by_reason)


def missed_stats(by_reason: Counter[str]) -> dict[str, float]:
    """``by_reason`` as ``Drafter.stats`` has it."""
    stats: dict[str, float] = {f"{PREFIX}{reason}": count for reason, count in by_reason.items()}
    return {"missed": by_reason.total()} | stats


def missed_by_reason(stats: Mapping[str, float]) -> Counter[str]:
    """The inverse: what a drafter's ``stats`` say."""
    return Counter({key.removeprefix(PREFIX): int(count) for key, count in stats.items() if key.startswith(PREFIX)})
