"""Counts of drafted tokens at each stage, by source and depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from suffolk.datastore.draft_tree import DraftTree

Place = tuple[int, int]
"""Source bits (a shared node has the bits of all its sources and counts once), and depth: 1 for the first drafted token."""

STAGES = ("proposed", "verified", "accepted", "earned")


@dataclass(slots=True)
class DraftCounts:
    """Drafted tokens by place, at each stage on their way into the text. Not thread-safe.

    Attributes:
        proposed: nodes that came from drafters.
        verified: nodes that the target read.
        accepted: drafted tokens that are in the text.
        earned: accepted tokens that saved a pass: all but a drafted token that ends the text, which its pass would have
            sampled anyway. So tokens after the first = passes after the prompt's + earned.
    """

    proposed: Counter[Place] = field(default_factory=Counter)
    verified: Counter[Place] = field(default_factory=Counter)
    accepted: Counter[Place] = field(default_factory=Counter)
    earned: Counter[Place] = field(default_factory=Counter)

    def add_tokens(self, sources: Sequence[int]) -> None:
        """Count the tokens that one pass added: the source bits of the drafted tokens from depth 1 on, then 0 for the target's."""
        drafted = [(source, depth) for depth, source in enumerate(sources, 1) if source]
        self.accepted.update(drafted)
        self.earned.update(drafted[: len(sources) - 1])

    def by_source(self) -> dict[str, dict[str, int]]:
        """For JSON: ``STAGE_by_source`` -> source bits -> tokens of all depths."""
        return {f"{stage}_by_source": _by_source(getattr(self, stage)) for stage in STAGES}

    def rows(self) -> list[dict[str, int]]:
        """For JSON: source bits, depth and the count of each stage, one row per place, sorted."""
        places = sorted({place for stage in STAGES for place in getattr(self, stage)})
        return [
            {"source": source, "depth": depth} | {stage: getattr(self, stage)[source, depth] for stage in STAGES}
            for source, depth in places
        ]


def places(tree: DraftTree) -> Counter[Place]:
    """The places of the nodes of ``tree``, and the number of nodes at each."""
    return Counter(zip(tree.sources.tolist(), tree.depths().tolist(), strict=True))


def _by_source(counts: Counter[Place]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for (source, _), count in counts.items():
        total[str(source)] += count
    return dict(total)
