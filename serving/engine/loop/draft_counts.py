"""Counts of drafted tokens at each stage, by source and depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from suffolk.datastore.draft_tree import DraftTree

Place = tuple[int, int]
"""Source bits and depth. A node of several sources has all their bits and counts once. The first drafted token has depth 1."""

STAGES = ("proposed", "verified", "accepted", "earned")


@dataclass(slots=True)
class DraftCounts:
    """Drafted tokens by source and depth, at each stage from draft to text. Not thread-safe.

    Attributes:
        proposed: nodes that drafters returned.
        verified: nodes that the target verified.
        accepted: drafted tokens in the text.
        earned: accepted tokens that saved a pass. These are all except a drafted token that ends the text, because its pass
            samples that token too. So the number of tokens after the first is the number of passes after the prompt's plus
            ``earned``.
    """

    proposed: Counter[Place] = field(default_factory=Counter)
    verified: Counter[Place] = field(default_factory=Counter)
    accepted: Counter[Place] = field(default_factory=Counter)
    earned: Counter[Place] = field(default_factory=Counter)

    def add_tokens(self, sources: Sequence[int]) -> None:
        """Count the tokens that one pass added.

        ``sources``: the source bits of the drafted tokens from depth 1 on, then 0 for the target's own token.
        """
        drafted = [(source, depth) for depth, source in enumerate(sources, 1) if source]
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


def places(tree: DraftTree) -> Counter[Place]:
    """The number of nodes of ``tree`` at each place."""
    return Counter(zip(tree.sources.tolist(), tree.depths().tolist(), strict=True))


def _by_source(counts: Counter[Place]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for (source, _), count in counts.items():
        total[str(source)] += count
    return dict(total)
