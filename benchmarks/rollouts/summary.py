"""Numbers of each method in each epoch: speed, tokens per pass, cost of keeping answers, and equality of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.benchmarks.decode.options import PLAIN


def summarize(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each epoch and way, epochs in order, plain decoding first."""
    plain = {row["epoch"]: _rate(row) for row in rows if row["way"] == PLAIN}
    ordered = sorted(rows, key=lambda row: (row["epoch"], row["way"] != PLAIN))
    return [_summary(row, plain[row["epoch"]]) for row in ordered]


def _summary(row: dict[str, Any], plain_rate: float) -> dict[str, Any]:
    return row | {
        "tokens_per_second": _rate(row),
        "speed_up": _rate(row) / plain_rate,
        "mean_generated_length": (row["tokens"] - row["answers"]) / row["passes"] if row["passes"] else 1.0,
        "keeping_microseconds_a_token": 1e6 * row["keeping_seconds"] / row["tokens"],
    }


def _rate(row: dict[str, Any]) -> float:
    return float(row["tokens"] / row["seconds"])
