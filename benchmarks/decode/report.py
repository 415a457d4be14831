"""Table and plot of the decoding measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.plot import Panel, series
from suffolk.datastore.text_table import Table

PACKAGES = ("numpy", "torch", "transformers", "tokenizers", "grpcio", "matplotlib")
HEADERS = (
    "prompts, drafter",
    "runs",
    "tokens/s",
    "ratio",
    "speed-up",
    "process",
    "least",
    "total",
    "with prompt",
    "M",
    "nodes/step",
    "draft time",
    "identical",
)
TIE_HEADERS = ("per 100k", "largest gap")
NOTES = (
    "all drafters decode each prompt in turn, in short pieces and random order; drafters learn from "
    "prompt to prompt, as in service; transformers decodes whole texts",
    "each piece is compared to the pieces of plain decoding around it; ratio: median of the pieces; speed-up: all tokens "
    "to those that plain decoding would have generated in the same time; process: the same by processor time; in "
    "brackets: 95 % interval, from random prompts and pieces",
    "tokens/s: median over prompts, without the prompt pass; least: the whole prompt with the least ratio; total: ratio "
    "of whole prompts; with prompt: prompt pass included",
    "M: tokens generated per target pass; identical: outputs that equal plain decoding's, token for token",
    "recorded: answers of plain decoding, drafted again, which no drafter can beat; share of the ceiling: the gain in speed-up, "
    "divided by that of recorded answers",
    "'none, again' (--control) is plain decoding run a second time: how far its ratios differ from 1 is noise",
)
TIE_NOTE = (
    "per 100k: first differences per 100,000 compared tokens; largest gap: between the target's scores of the two tokens at a "
    "first difference (near 0: a near-tie that rounding decides)"
)


def decoding_notes(results: dict[str, Any]) -> tuple[str, ...]:
    """Return the notes of a report. They explain near-ties if texts may differ at a near-tie."""
    return (*NOTES, TIE_NOTE) if _shows_ties(results) else NOTES


def tables(results: dict[str, Any]) -> list[str | Table]:
    """Return the table, and the accepted tokens by source."""
    summary = results["summary"]
    ties = _shows_ties(results)
    every = [(f"{group}: {name}", name, each) for group, ways in summary.items() for name, each in ways.items()]
    rows = [_row(title, each, ties) for title, _, each in every]
    turns = f"decoded in turn, in pieces of {results['piece_tokens']} tokens"
    headers = HEADERS + TIE_HEADERS if ties else HEADERS
    parts: list[str | Table] = [Table(headers, rows), turns]
    for group, ways in summary.items():
        if shares := {
            name: each["share_of_ceiling"] for name, each in ways.items() if each["share_of_ceiling"] is not None
        }:
            parts.append(
                f"share of the ceiling: {group}: " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
            )
    parts.append("accepted drafted tokens by source:")
    for title, name, each in every:
        if name != PLAIN:
            counts = ", ".join(f"{source} {count:,}" for source, count in each["accepted_by_source"].items())
            parts.append(f"  {title}: {counts or 'none'}")
    parts.append("milliseconds a step:")
    for title, _, each in every:
        shown = ", ".join(f"{part} {spent:.2f}" for part, spent in each["milliseconds_a_step"].items() if spent)
        parts.append(f"  {title}: {shown or 'no steps'}")
    limit = results["bandwidth"]
    parts.append(
        f"memory bandwidth: a pass reads {limit['weight_bytes_a_pass'] / 1e6:,.0f} MB of weights, the device "
        f"{limit['device_bytes_a_second'] / 1e9:.1f} GB/s; a plain pass of {1e3 * limit['plain_pass_seconds']:.1f} ms is at "
        f"{limit['share_of_limit']:.0%} of that limit"
    )
    return [*parts, *skipped_lines(results)]


def skipped_lines(results: dict[str, Any]) -> list[str]:
    """Return a line that counts the skipped prompts, if there are any."""
    skipped = results["prompts_skipped"]
    return [f"prompts skipped, because prompt and answer exceed the model's context: {len(skipped)}"] if skipped else []


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot speed-up and tokens per target pass."""
    summary = results["summary"]
    groups = list(summary)
    names = [name for name in summary[groups[0]] if name != PLAIN]
    labels = [group.replace(", ", ",\n") for group in groups]
    speed_ups = {name: [summary[group][name]["pieces"]["speed_up"] for group in groups] for name in names}
    return [
        Panel("speed-up", "times plain decoding", labels, speed_ups),
        Panel(
            "mean generated length",
            "tokens a target pass",
            labels,
            series(summary.values(), names, "mean_generated_length"),
        ),
    ]


def with_interval(pieces: dict[str, Any] | None, name: str) -> str | None:
    """Format a ratio with its interval. None for plain decoding, or without pieces."""
    if pieces is None or pieces[name] is None:
        return None
    interval = pieces[f"{name}_interval"]
    shown = "" if interval is None else " ({:.3f} to {:.3f})".format(*interval)
    return f"{pieces[name]:.3f}{shown}"


def _shows_ties(results: dict[str, Any]) -> bool:
    """Whether a draft may change a text at a near-tie, or a text differs for another reason."""
    ways = [each for ways in results["summary"].values() for each in ways.values()]
    return not results["target"]["same_bits"] or any(each["identical"] < each["runs"] for each in ways)


def _row(name: str, each: dict[str, Any], ties: bool) -> list[object]:
    share = each["draft_time_share"]
    return [
        name,
        each["runs"],
        each["tokens_per_second_median"],
        *(with_interval(each["pieces"], name) for name in ("ratio", "speed_up", "process_speed_up")),
        each["speed_up_least"],
        each["speed_up_total_time"],
        each["speed_up_with_prompt_pass"],
        each["mean_generated_length"],
        each["nodes_verified_per_step"],
        None if share is None else f"{share:.1%}",
        f"{each['identical']}/{each['runs']}",
        *([each["disagreements_per_100k_tokens"], each["largest_near_tie_gap"]] if ties else []),
    ]
