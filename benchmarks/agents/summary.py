"""Numbers of each method: all turns, and the turns of first and of later sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from suffolk.benchmarks.decode.options import PLAIN

PARTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "first sessions": lambda run: run["session"] == 1,
    "later sessions": lambda run: run["session"] > 1,
    "all": lambda run: True,
}


def summarize(runs: Sequence[dict[str, Any]], ways: Sequence[str]) -> list[dict[str, Any]]:
    """One row for each part and way, in order; none for a part without runs."""
    return [
        {"part": part, "way": way} | _summary(_of(runs, belongs, way), _of(runs, belongs, PLAIN))
        for part, belongs in PARTS.items()
        for way in ways
        if any(map(belongs, runs))
    ]


def _of(runs: Sequence[dict[str, Any]], belongs: Callable[[dict[str, Any]], bool], way: str) -> list[dict[str, Any]]:
    return [run for run in runs if run["way"] == way and belongs(run)]


def _summary(runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> dict[str, Any]:
    tokens, steps = sum(run["tokens"] for run in runs), sum(run["steps"] for run in runs)
    return {
        "turns": len(runs),
        "tokens": tokens,
        "tokens_per_second": _rate(runs),
        "speed_up": _rate(runs) / _rate(plain) if _rate(plain) else 1.0,
        "speed_up_least": min(_rate([run]) / max(_rate([other]), 1e-9) for run, other in zip(runs, plain, strict=True)),
        "mean_generated_length": (tokens - len(runs)) / steps if steps else 1.0,
        "identical": sum(run["identical"] for run in runs),
    }


def _rate(runs: Sequence[dict[str, Any]]) -> float:
    """Tokens after the first per second."""
    seconds = sum(run["decode_seconds"] for run in runs)
    return float((sum(run["tokens"] for run in runs) - len(runs)) / seconds) if seconds else 0.0
