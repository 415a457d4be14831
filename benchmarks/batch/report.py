"""Table and plot of the batch measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

HEADERS = ("batch, drafter", "requests", "tokens/s", "speed-up", "least", "tokens a pass", "as the first plain run")
NOTES = (
    "tokens/s: engine throughput including prompts, median of rounds; speed-up: over plain decoding at the same batch "
    "size; least: the worst round",
    "tokens a pass: tokens per request and target pass; passes that read part of a prompt count too",
    "as the first plain run: outputs that equal the first plain output of their prompt, token for token, at any batch "
    "size",
)


def batch_parts(results: dict[str, Any]) -> list[str | Table]:
    """The table, with facts about it."""
    rows = [
        (
            f"{size}: {way}",
            each["requests"],
            each["tokens_per_second"],
            each["speed_up"],
            each["speed_up_least"],
            each["tokens_per_pass"],
            f"{each['identical']}/{each['requests']}",
        )
        for size, ways in results["batches"].items()
        for way, each in ways.items()
    ]
    memory = f"engine cache: {results['cache_bytes'] / 2**20:.0f} MiB"
    return [Table(HEADERS, rows), memory, *_tie_lines(results)]


def batch_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot tokens a second and speed-up by batch size."""
    batches = results["batches"]
    sizes = list(batches)
    ways = list(batches[sizes[0]])
    drafting = [way for way in ways if way != PLAIN]

    def series(names: list[str], field: str) -> dict[str, list[float | None]]:
        return {way: [batches[size][way][field] for size in sizes] for way in names}

    return [
        Panel("throughput by batch size", "tokens a second", sizes, series(ways, "tokens_per_second")),
        Panel("speed-up by batch size", "times plain decoding", sizes, series(drafting, "speed_up")),
    ]


def _tie_lines(results: dict[str, Any]) -> list[str]:
    """Near-ties, where texts may differ by one."""
    ties = results["near_ties"]
    if results["target"]["same_bits"] and not ties["differences"]:
        return []
    return [
        f"near-ties: {len(ties['differences'])} in {ties['tokens_compared']} tokens, {ties['per_100000_tokens']:.1f} per 100,000; "
        f"largest gap {ties['largest_gap']:.2g}",
        "near-tie: two tokens have nearly equal scores, and rounding (fp32, bf16) picks a different one in another batch or "
        "tree; gap: difference of the two scores, which are logits if greedy, else logits plus noise",
    ]
