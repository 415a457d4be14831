"""Table and plot of the measurement of predicted texts."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

HEADERS = ("drafter, prediction", "speed-up", "least", "counted", "M", "accepted", "rejected", "identical")
NOTES = (
    "prediction: the plain answer, with a share of its lines replaced by lines of other files",
    "speed-up: ratio of all tokens per second to plain decoding, without the prompt's pass; least: the worst prompt",
    "counted: the speed-up along the plain answers if a pass takes the measured time of its rows and drafting takes none; "
    "other programs do not change it",
    "M: tokens generated per target pass; accepted: share of the answer that was accepted from the prediction; rejected: share of "
    "the prediction that a shortest diff to the answer deletes",
    "identical: outputs equal to plain decoding's token for token",
    "every prompt is run in all ways in turn, in rotating order; each way has drafters and a budget of its own",
)


def prediction_parts(results: dict[str, Any]) -> list[str | Table]:
    """The table; and the largest gap, where texts may differ by a near-tie."""
    summary = results["summary"]
    gap = max(each["largest_near_tie_gap"] for each in summary.values())
    parts: list[str | Table] = [Table(HEADERS, [_row(name, each) for name, each in summary.items()])]
    if gap or not results["target"]["same_bits"]:
        parts.append(
            f"largest gap: {gap:.3g}, between the target's scores of the two tokens where an output parts (near 0: a near-tie "
            "that rounding decides)"
        )
    if results["prompts_skipped"]:
        parts.append(f"prompts left out, too long for the model with the answer: {len(results['prompts_skipped'])}")
    return parts


def prediction_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot the measured speed-up, the counted speed-up, and the mean generated length."""
    summary = results["summary"]
    names = list(summary)
    speeds = {"by the clock": "speed_up", "counted": "counted_speed_up"}
    return [
        Panel(
            "speed-up",
            "times plain decoding",
            names,
            {title: [summary[name][field] for name in names] for title, field in speeds.items()},
        ),
        Panel("M", "tokens per pass", names, {"M": [summary[name]["mean_generated_length"] for name in names]}),
    ]


def _row(name: str, each: dict[str, Any]) -> list[object]:
    return [
        name,
        f"{each['speed_up']:.2f}",
        f"{each['speed_up_least']:.2f}",
        f"{each['counted_speed_up']:.3f}",
        f"{each['mean_generated_length']:.2f}",
        f"{each['accepted_prediction_share']:.0%}",
        f"{each['rejected_prediction_share']:.0%}",
        f"{each['identical']} of {each['runs']}",
    ]
