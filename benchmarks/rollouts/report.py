"""Table and plot of the measurement of rollouts."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

HEADERS = ("epoch", "method", "tokens/s", "speed-up", "M", "drafted", "accepted", "keeping us/token", "identical")
NOTES = (
    "speed-up: ratio of all tokens per second to plain decoding, prompts and the keeping of answers included",
    "with --answers: passes and sampling take their measured cost, all else takes processor time",
    "M: tokens generated per target pass and request; drafted, accepted: drafted tokens that were verified, that were accepted",
    "keeping: time to insert finished answers; arctic inserts within its drafts",
    "identical: answers equal to the first method's token for token; the methods run in turn, in rotating order",
    "prompt trees: an index for each prompt, replaced after each epoch (HistoSpec's way); arctic: the suffix tree of Arctic "
    "Inference with this engine's planner; live store: one store of all answers, the prompt's own group first; hybrid: the live "
    "store and prompt lookup",
)


def rollout_parts(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    parts: list[str | Table] = [Table(HEADERS, [_row(each) for each in results["summary"]])]
    if results["prompts_skipped"]:
        parts.append(f"prompts left out, too long for the model with the answer: {len(results['prompts_skipped'])}")
    return parts


def rollout_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot speed-up and mean generated length by method, one bar an epoch."""
    summary = results["summary"]
    ways = list(dict.fromkeys(each["way"] for each in summary))
    epochs = sorted({each["epoch"] for each in summary})

    def by_epoch(field: str) -> dict[str, list[float]]:
        return {f"epoch {epoch}": [each[field] for each in summary if each["epoch"] == epoch] for epoch in epochs}

    return [
        Panel("speed-up", "times plain decoding", ways, by_epoch("speed_up")),
        Panel("M", "tokens per pass", ways, by_epoch("mean_generated_length")),
    ]


def _row(each: dict[str, Any]) -> list[object]:
    return [
        each["epoch"],
        each["way"],
        f"{each['tokens_per_second']:.1f}",
        f"{each['speed_up']:.3f}",
        f"{each['mean_generated_length']:.2f}",
        each["drafted_tokens"],
        each["accepted_tokens"],
        f"{each['keeping_microseconds_a_token']:.1f}",
        f"{each['identical']} of {each['answers']}",
    ]
