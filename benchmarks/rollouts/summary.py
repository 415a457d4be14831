"""Numbers of each method in each epoch: speed, tokens per pass, cost of keeping answers, and equality of the text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from suffolk.benchmarks.decode.options import PLAIN


def summarize(runs: Sequence[dict[str, Any]], ways: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each epoch and way, in order."""
    return [
        {"epoch": epoch, "way": way} | _summary(_of(runs, epoch, way), _of(runs, epoch, PLAIN))
        for epoch in sorted({run["epoch"] for run in runs})
        for way in ways
    ]


def _of(runs: Sequence[dict[str, Any]], epoch: int, way: str) -> list[dict[str, Any]]:
    return [run for run in runs if (run["epoch"], run["way"]) == (epoch, way)]


def _summary(runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tokens, answers, passes = (sum(run[name] for run in runs) for name in ("tokens", "answers", "passes"))
    ratios = [_rate([run]) / _rate([other]) for run, other in zip(runs, plain, strict=True)]
    return {
        "answers": answers,
        "tokens": tokens,
        "tokens_per_second": _rate(runs),
        "speed_up": _rate(runs) / _rate(plain),
        "speed_up_median": median(ratios),
        "speed_up_least": min(ratios),
        "mean_generated_length": (tokens - answers) / passes if passes else 1.0,
        "keeping_microseconds_a_token": 1e6 * sum(run["keeping_seconds"] for run in runs) / tokens,
        "identical": sum(run["identical"] for run in runs),
    }


def _rate(runs: Sequence[dict[str, Any]]) -> float:
    return float(sum(run["tokens"] for run in runs) / sum(run["seconds"] for run in runs))
