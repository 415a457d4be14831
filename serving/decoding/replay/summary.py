"""Summary statistics of generations, for comparisons of drafters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.stats import GenerationStats

DEPTHS = 6


def summarize(stats: Sequence[GenerationStats]) -> dict[str, Any]:
    """Sums and means over any number of texts. The pass that completes a prompt and the token of this pass are excluded.

    ``mean_generated_length`` is M, tokens per pass; 1 without a pass. ``acceptance_by_depth`` holds for depths 1 to ``DEPTHS`` the
    share of passes that accepted at least this many drafted tokens. ``accepted_by_source`` holds the share of accepted tokens by
    source or combination of sources, in descending order.
    """
    depths: Counter[int] = Counter()
    sources: Counter[str] = Counter()
    for each in stats:
        for (source, depth), count in each.drafted.accepted.items():
            depths[depth] += count
            sources[source_name(source)] += count
    tokens, passes = sum(each.tokens - 1 for each in stats), sum(each.steps for each in stats)
    return {
        "texts": len(stats),
        "tokens": tokens,
        "passes": passes,
        "mean_generated_length": tokens / passes if passes else 1.0,
        "nodes_per_pass": sum(each.nodes_verified for each in stats) / max(passes, 1),
        "acceptance_by_depth": [depths[depth] / max(passes, 1) for depth in range(1, DEPTHS + 1)],
        "accepted_by_source": {source: count / sources.total() for source, count in sources.most_common()},
        "draft_failures": sum(each.draft_failures.total() for each in stats),
    }
