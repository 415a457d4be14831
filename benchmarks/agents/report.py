"""Table and plot of the measurement of agents."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

HEADERS = ("sessions", "method", "tokens/s", "speed-up", "least", "M", "identical")
NOTES = (
    "a turn: the prompt holds the file as it is now and asks for one edit; the answer is the whole file",
    "own store: prompt lookup, and a live store of the session's earlier answers; shared store: of all sessions' answers",
    "speed-up: ratio of all tokens per second to plain decoding, without the prompt's pass; least: the worst turn",
    "M: tokens generated per target pass; identical: answers equal to plain decoding's token for token",
    "the methods run every turn one after the other, in rotating order",
)


def agent_parts(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    return [Table(HEADERS, [_row(each) for each in results["summary"]])]


def agent_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot the speed-up by method, one bar for each part of the sessions."""
    summary = results["summary"]
    parts, ways = (list(dict.fromkeys(each[name] for each in summary)) for name in ("part", "way"))
    bars = {part: [each["speed_up"] for each in summary if each["part"] == part] for part in parts}
    return [Panel("speed-up", "times plain decoding", ways, bars)]


def _row(each: dict[str, Any]) -> list[object]:
    return [
        each["part"],
        each["way"],
        f"{each['tokens_per_second']:.1f}",
        f"{each['speed_up']:.2f}",
        f"{each['speed_up_least']:.2f}",
        f"{each['mean_generated_length']:.2f}",
        f"{each['identical']} of {each['turns']}",
    ]
