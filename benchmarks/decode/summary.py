"""Summarises each prompt set and drafter: speed, speed-up, acceptance, and equality of outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from suffolk.benchmarks.decode.bounding_drafters import RECORDED
from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.decode.way import BesidePlain, Piece, beside_plain, ratios
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.stats import PARTS

ALL = "all"


def summarize(
    runs: Sequence[dict[str, Any]], ways: Sequence[str], seed: int = 0
) -> dict[str, dict[str, dict[str, Any]]]:
    """Map prompt set -> drafter -> results. With several sets, the last entry combines all.

    ``seed``: seeds the resampling that gives the intervals.
    """
    groups = list(dict.fromkeys(run["group"] for run in runs))
    chosen = {group: [run for run in runs if run["group"] == group] for group in groups}
    if len(groups) > 1:
        chosen[ALL] = list(runs)
    found = {
        group: {way: _summary(each, [run for run in each if run["drafter"] == PLAIN], way, seed) for way in ways}
        for group, each in chosen.items()
    }
    for each in found.values():
        _add_shares(each)
    return found


def _add_shares(ways: dict[str, dict[str, Any]]) -> None:
    """Add each drafter's share of the ceiling: its gain in speed, divided by the gain of the drafter ``recorded``."""
    most = (ways.get(RECORDED, {}).get("pieces") or {}).get("speed_up")
    for each in ways.values():
        own = (each["pieces"] or {}).get("speed_up")
        each["share_of_ceiling"] = None if own is None or most is None or most <= 1 else (own - 1) / (most - 1)


def _summary(group: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]], way: str, seed: int) -> dict[str, Any]:
    runs = [run for run in group if run["drafter"] == way]
    speed_ups = [run["speed_up"] for run in runs if "speed_up" in run]
    seconds = total(runs, "decode_seconds")
    rates = [run["tokens_per_second"] for run in runs if run["decode_seconds"]]  # undefined for a single token
    differing = [run for run in runs if not run["identical"]]
    by_source: Counter[str] = Counter()
    for run in runs:
        by_source.update({source_name(int(bits)): count for bits, count in run["accepted_by_source"].items()})
    steps = total(runs, "steps")
    return {
        "runs": len(runs),
        "tokens": total(runs, "tokens"),
        "tokens_per_second_total": token_rate(runs),
        "tokens_per_second_median": median(rates) if rates else None,
        "speed_up_median": median(speed_ups) if speed_ups else None,
        "speed_up_least": min(speed_ups, default=None),
        "speed_up_total_time": _share(token_rate(runs), token_rate(plain)),
        "pieces": None if way == PLAIN else ratios(list(map(_beside_plain, runs, plain)), seed),
        "speed_up_with_prompt_pass": _share(token_rate(runs, "prefill"), token_rate(plain, "prefill")),
        "mean_generated_length": 1.0 if not steps else _behind(runs) / steps,
        "accepted_by_source": dict(by_source),
        "nodes_verified_per_step": _share(total(runs, "nodes_verified"), steps),
        "milliseconds_a_step": {
            part: _share(1e3 * sum(run["seconds"][part] for run in runs), steps) for part in PARTS if part != "prefill"
        },
        "draft_time_share": _share(sum(run["seconds"]["draft"] + run["seconds"]["wait"] for run in runs), seconds),
        "draft_failures": sum(sum(run["draft_failures"].values()) for run in runs),
        "identical": len(runs) - len(differing),
        "disagreements_per_100k_tokens": _share(1e5 * len(differing), total(runs, "tokens_compared")),
        "largest_near_tie_gap": max((run["near_tie_gap"] for run in differing), default=None),
    }


def _beside_plain(run: dict[str, Any], plain: dict[str, Any]) -> list[BesidePlain]:
    """Compare the pieces of ``run`` with those of plain decoding. Empty if the text was not decoded in pieces."""
    own, others = ([Piece(**each) for each in row.get("pieces", ())] for row in (run, plain))
    return beside_plain(own, others)


def token_rate(runs: Sequence[dict[str, Any]], *parts: str) -> float:
    """Return the tokens per second of all runs together.

    ``parts``: parts of the time that count besides decoding, such as "prefill". With ``parts``, all tokens of a run count except
    one. Without, the tokens of a run's prompt pass do not count, because the time of this pass does not.
    """
    seconds = total(runs, "decode_seconds") + sum(run["seconds"][part] for run in runs for part in parts)
    return _share(total(runs, "tokens") - len(runs) if parts else _behind(runs), seconds) or 0.0


def _behind(runs: Sequence[dict[str, Any]]) -> int:
    """Count the tokens of ``runs`` without the tokens of prompt passes: ``first_tokens`` of a run, by default one."""
    return sum(int(run["tokens"]) - int(run.get("first_tokens", 1)) for run in runs)


def total(runs: Sequence[dict[str, Any]], name: str) -> Any:
    return sum(run[name] for run in runs)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
