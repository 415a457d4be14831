"""Summarises the runs by set, batch size and method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from suffolk.datastore.text_table import format_table

Run = dict[str, Any]
HEADERS = ("set", "batch", "method", "tokens/s", "speed-up", "CPU", "tokens a pass", "drafted", "accepted", "identical")
NOTES = (
    "speed-up: seconds without drafts divided by seconds of the method, for the same prompts in the same rounds",
    "CPU: the engine's CPU seconds per token, as a share of those without drafts",
    "tokens a pass: generated tokens per request and pass; accepted: share of drafted tokens that are accepted",
)


def summarize(runs: Sequence[Run]) -> list[Run]:
    """Return one row per set, batch size and method, and one per batch size and method for all sets."""
    keys = {
        (each[0], each[1], run["method"])
        for run in runs
        for each in ((run["set"], run["batch"]), ("all", run["batch"]))
    }
    methods = list(dict.fromkeys(run["method"] for run in runs))
    order = sorted(keys, key=lambda key: (key[1], key[0] == "all", key[0], sorted(methods).index(key[2])))
    return [
        _row(*key, [run for run in runs if key[0] in ("all", run["set"]) and key[1:] == (run["batch"], run["method"])])
        for key in order
    ]


def _row(group: str, batch: int, method: str, runs: Sequence[Run]) -> Run:
    total = {
        name: sum(run[name] for run in runs)
        for name in ("tokens", "seconds", "cpu_seconds", "plain_seconds", "plain_cpu_seconds", "texts", "identical")
    }
    drafted, accepted = sum(run["draft_tokens"] for run in runs), sum(run["accepted_tokens"] for run in runs)
    passes = total["tokens"] - total["texts"] - accepted  # the first token of an output comes from the prompt pass
    return {
        "set": group,
        "batch": batch,
        "method": method,
        **total,
        "tokens_per_second": total["tokens"] / total["seconds"],
        "speed_up": total["plain_seconds"] / total["seconds"],
        "median_speed_up": float(np.median([run["plain_seconds"] / run["seconds"] for run in runs])),
        "cpu_share": total["cpu_seconds"] / total["plain_cpu_seconds"],
        "tokens_per_pass": (total["tokens"] - total["texts"]) / max(1, passes),
        "drafted_per_pass": drafted / max(1, passes),
        "draft_tokens": drafted,
        "accepted_tokens": accepted,
        "service_cpu_seconds": sum(run["service_cpu_seconds"] for run in runs),
    }


def lines(rows: Sequence[Run]) -> list[str]:
    """Format the table and its notes."""
    cells = [
        [
            row["set"],
            row["batch"],
            row["method"],
            f"{row['tokens_per_second']:.1f}",
            f"{row['speed_up']:.2f}",
            f"{row['cpu_share']:.2f}",
            f"{row['tokens_per_pass']:.2f}",
            f"{row['drafted_per_pass']:.2f}",
            f"{row['accepted_tokens'] / row['draft_tokens']:.0%}" if row["draft_tokens"] else "-",
            f"{row['identical']} of {row['texts']}",
        ]
        for row in rows
    ]
    return [format_table(HEADERS, cells), *NOTES]
