"""Counts of drafted tokens by stage, source and depth, of failed drafts by reason, and the seconds of drafters."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.user_code_errors import USER_CODE_ERRORS, first_line

Place = tuple[int, int]
"""Source bits (``DraftTree.sources``) and depth of a node. A node of several sources has all their bits, and counts once. The first
drafted token has depth 1."""

_MOST_WAITING = 64
STAGES = ("proposed", "verified", "accepted", "earned")
log = logging.getLogger(__name__)
PREFIX = "failed "
_SECONDS = ("prefill_seconds", "model_seconds")
"""Keys of ``Drafter.stats`` for the seconds of drafting models: of their prefill, and of their other passes."""


class TreeCounts:
    """Nodes of trees by source and depth. Counting many trees at once is faster, so trees wait for others. Not thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[Place] = Counter()
        self._waiting: list[DraftTree] = []

    @property
    def counts(self) -> Counter[Place]:
        """The numbers of all nodes so far."""
        if self._waiting:
            for source, depth, number in _native.count_nodes(self._waiting):
                self._counts[source, depth] += number
            self._waiting.clear()
        return self._counts

    def add(self, tree: DraftTree) -> None:
        """Count the nodes of ``tree``, whose arrays must not change afterwards."""
        self._waiting.append(tree)
        if len(self._waiting) >= _MOST_WAITING:
            _ = self.counts


@dataclass(slots=True)
class DraftCounts:
    """Drafted tokens by source and depth, at each stage from draft to text. Not thread-safe.

    Attributes:
        accepted: drafted tokens in the text.
        earned: accepted tokens that saved a pass. An accepted token that ends the text saves none, because it replaces the token
            that the target adds in each pass. So ``tokens`` - 1 = ``steps`` + ``earned`` (``stats.Counts``).
    """

    accepted: Counter[Place] = field(default_factory=Counter)
    earned: Counter[Place] = field(default_factory=Counter)
    _trees: dict[str, TreeCounts] = field(default_factory=lambda: {"proposed": TreeCounts(), "verified": TreeCounts()})

    @property
    def proposed(self) -> Counter[Place]:
        """Nodes that drafters returned."""
        return self._trees["proposed"].counts

    @property
    def verified(self) -> Counter[Place]:
        """Nodes that the target verified."""
        return self._trees["verified"].counts

    def add_tree(self, stage: str, tree: DraftTree) -> None:
        """Count the nodes of ``tree`` as "proposed" or "verified"."""
        if len(tree):
            self._trees[stage].add(tree)

    def add_tokens(self, sources: Sequence[int]) -> None:
        """Count the tokens that one pass added.

        ``sources``: the source bits of the drafted tokens from depth 1 on, then 0 for the target's own token.
        """
        drafted = [(source, depth) for depth, source in enumerate(sources, 1) if source]
        if not drafted:
            return
        self.accepted.update(drafted)
        self.earned.update(drafted[: len(sources) - 1])

    def by_source(self) -> dict[str, dict[str, int]]:
        """The counts of each stage by source, over all depths: ``STAGE_by_source`` -> source bits -> tokens. Ready for JSON."""
        return {f"{stage}_by_source": _by_source(getattr(self, stage)) for stage in STAGES}

    def rows(self) -> list[dict[str, int]]:
        """One row per source and depth, sorted, with the count of each stage; ready for JSON."""
        places = sorted({place for stage in STAGES for place in getattr(self, stage)})
        return [
            {"source": source, "depth": depth} | {stage: getattr(self, stage)[source, depth] for stage in STAGES}
            for source, depth in places
        ]


def _by_source(counts: Counter[Place]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for (source, _), count in counts.items():
        total[str(source)] += count
    return dict(total)


class DraftFailures:
    """A drafter's failed drafts, by reason. The first failure for each reason is logged. Not thread-safe.

    Attributes:
        by_reason: failed drafts by the name of the error.
    """

    def __init__(self, drafter: str) -> None:
        """``drafter``: its name in messages."""
        self.by_reason: Counter[str] = Counter()
        self._drafter = drafter

    def add(self, reason: str, message: str, drafts: int = 1) -> None:
        """Count ``drafts`` failed drafts. ``message`` explains the failure in the log, once for each reason."""
        if not self.by_reason[reason]:
            log.warning("%s: %s; continuing without its drafts", self._drafter, message)
        self.by_reason[reason] += drafts

    @contextmanager
    def guard(self, drafts: int = 1, before: str = "") -> Iterator[None]:
        """Count an error of the block as ``drafts`` failed drafts, and go on after the block. ``before``: text to put before the
        error's message."""
        try:
            yield
        except USER_CODE_ERRORS as error:
            self.add(type(error).__name__, f"{before}{first_line(error)}", drafts)

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


def split_seconds(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> tuple[float, float, float]:
    """``seconds`` of drafting, split into retrieval, models and prefill. ``before``, ``after``: the drafter's ``stats``."""
    prefill, models = (max(0.0, float(after.get(key, 0.0)) - float(before.get(key, 0.0))) for key in _SECONDS)
    prefill = min(seconds, prefill)
    models = min(seconds - prefill, models)
    return seconds - prefill - models, models, prefill
