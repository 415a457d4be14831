"""Numbers of each way: speed, acceptance, and equality of the text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from suffolk.benchmarks.decode.options import PLAIN


def summarize(runs: Sequence[dict[str, Any]], ways: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Map each way to its numbers."""
    plain = [run for run in runs if run["drafter"] == PLAIN]
    return {way: _summary([run for run in runs if run["drafter"] == way], plain) for way in ways}


def _summary(runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tokens, steps = _sum(runs, "tokens"), _sum(runs, "steps")
    return {
        "runs": len(runs),
        "tokens": tokens,
        "speed_up": _rate(runs) / _rate(plain) if _rate(plain) else 1.0,
        "speed_up_median": median(run["speed_up"] for run in runs),
        "speed_up_least": min(run["speed_up"] for run in runs),
        "counted_speed_up": _sum(runs, "counted_plain_seconds") / max(1e-9, _sum(runs, "counted_seconds")),
        "mean_generated_length": (tokens - len(runs)) / steps if steps else 1.0,
        "accepted_prediction_share": _sum(runs, "accepted_prediction_tokens") / tokens,
        "rejected_prediction_share": _sum(runs, "rejected_prediction_tokens") / max(1, _sum(runs, "prediction_tokens")),
        "identical": sum(run["identical"] for run in runs),
        "largest_near_tie_gap": max(run["near_tie_gap"] for run in runs),
    }


def _rate(runs: Sequence[dict[str, Any]]) -> float:
    """Tokens after the first per second, of all runs together."""
    seconds = _sum(runs, "decode_seconds")
    return (_sum(runs, "tokens") - len(runs)) / seconds if seconds else 0.0


def _sum(runs: Sequence[dict[str, Any]], name: str) -> Any:
    return sum(run[name] for run in runs)
