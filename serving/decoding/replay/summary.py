"""Summary statistics of generations, for comparisons of drafters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.stats import GenerationStats

DEPTHS = 6


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums and means over texts. The pass that completes a prompt and its generated token are excluded.

    Attributes:
        texts: number of texts.
        tokens: generated tokens, without the first of each text.
        passes: target passes for these tokens.
        mean_generated_length: M, tokens per pass.
        nodes_per_pass: verified nodes per pass.
        acceptance_by_depth: for depths 1 to ``DEPTHS``, share of passes that accepted at least this many drafted
            tokens.
        accepted_by_source: share of accepted tokens by source or combination of sources, in descending order.
        draft_failures: failed drafter calls.
    """

    texts: int
    tokens: int
    passes: int
    mean_generated_length: float
    nodes_per_pass: float
    acceptance_by_depth: list[float]
    accepted_by_source: dict[str, float]
    draft_failures: int

    def to_dict(self) -> dict[str, Any]:
        """The summary as a dict for JSON."""
        return asdict(self)


def summarize(stats: Sequence[GenerationStats]) -> Summary:
    """Summarize any number of texts. M is 1 if there is no pass."""
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
        nodes_per_pass=sum(each.nodes_verified for each in stats) / max(passes, 1),
        acceptance_by_depth=[depths[depth] / max(passes, 1) for depth in range(1, DEPTHS + 1)],
        accepted_by_source={source: count / sources.total() for source, count in sources.most_common()},
        draft_failures=sum(each.draft_failures.total() for each in stats),
    )
