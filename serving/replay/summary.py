"""What drafts did for some texts, in the few numbers by which drafters are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suffolk.datastore.draft_tree import source_name
from suffolk.serving.engine.loop.stats import GenerationStats

DEPTHS = 6


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums and means over texts. The pass that ends a prompt, and the token that it gives, count nowhere.

    Attributes:
        texts: how many.
        tokens: tokens behind the first of each text; ``passes``: of the target, for them.
        mean_generated_length: M, tokens a pass.
        nodes_a_pass: verified nodes a pass.
        right_to_depth: for depths 1 to ``DEPTHS``, the share of passes that accepted so many drafted tokens or more.
        accepted_by_source: of accepted tokens, the share of each source or combination of sources, largest first.
        missed: drafts that failed.
    """

    texts: int
    tokens: int
    passes: int
    mean_generated_length: float
    nodes_a_pass: float
    right_to_depth: list[float]
    accepted_by_source: dict[str, float]
    missed: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def summarize(stats: Sequence[GenerationStats]) -> Summary:
    """Of any texts; M is 1 where there is no pass."""
    depths: Counter[int] = Counter()
    sources: Counter[str] = Counter()
    for each in stats:
        for (source, depth), count in each.drafted.accepted.items():
            depths[depth] += count
            sources[source_name(source)] += count
    tokens, passes = sum(each.tokens - 1 for each in stats), sum(each.steps for each in stats)
    return Summary(
        texts=len(stats),
        tokens=tokens,
        passes=passes,
        mean_generated_length=tokens / passes if passes else 1.0,
        nodes_a_pass=sum(each.nodes_verified for each in stats) / max(passes, 1),
        right_to_depth=[depths[depth] / max(passes, 1) for depth in range(1, DEPTHS + 1)],
        accepted_by_source={source: count / sources.total() for source, count in sources.most_common()},
        missed=sum(each.missed.total() for each in stats),
    )
