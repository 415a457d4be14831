"""``metrics.speculative_decoding`` of a response, with the names and meanings of vLLM's fields."""

from __future__ import annotations

from collections import Counter
from typing import Any

from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.draft_stats import DraftCounts
from suffolk.serving.decoding.engine.loop.stats import GenerationStats


def speculation(stats: GenerationStats, shows_sources: bool) -> dict[str, Any] | None:
    """The metrics of one text; None if no draft was verified, and for callers that may not see sources.

    Nodes of trees count as draft tokens, and the longest verified path is ``num_spec_tokens``. ``by_source`` is an
    addition to vLLM's fields.
    """
    if not stats.drafted_steps or not shows_sources:
        return None
    deepest = max(depth for _, depth in stats.drafted.verified)
    return {
        "mean_acceptance_length": 1 + stats.accepted / stats.drafted_steps,
        "draft_acceptance_rate": stats.accepted / stats.nodes_verified,
        "acceptance_histogram": _histogram(stats.drafted, stats.drafted_steps, deepest),
        "num_spec_steps": stats.drafted_steps,
        "num_accepted_draft_tokens": stats.accepted,
        "num_draft_tokens": stats.nodes_verified,
        "num_spec_tokens": deepest,
        "by_source": _by_source(stats.drafted),
    }


def _histogram(drafted: DraftCounts, steps: int, deepest: int) -> list[int]:
    """Number of steps by accepted tokens, 0..deepest."""
    at_least = [steps] + [0] * (deepest + 1)
    for (_, depth), count in drafted.accepted.items():
        at_least[depth] += count
    return [more - fewer for more, fewer in zip(at_least, at_least[1:], strict=False)]


def _by_source(drafted: DraftCounts) -> dict[str, dict[str, int]]:
    names = {"num_draft_tokens": drafted.verified, "num_accepted_draft_tokens": drafted.accepted}
    found: dict[str, Counter[str]] = {}
    for name, counts in names.items():
        for (source, _), count in counts.items():
            found.setdefault(source_name(source), Counter())[name] += count
    return {source: {name: counts[name] for name in names} for source, counts in sorted(found.items())}
