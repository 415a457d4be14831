"""Shows the text of a generation as it comes, coloured by source, and a report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from suffolk.cli.source_colours import Colours, legend, paint
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


class Stream(Protocol):
    """A running generation, in this process or in a worker."""

    def __iter__(self) -> Iterator[Any]: ...

    def cancel(self) -> None: ...


StreamT = TypeVar("StreamT", bound=Stream)


def show(generation: StreamT, colours: Colours) -> tuple[StreamT, list[Any]]:
    """Write the text to stdout as it comes, and the colours' legend to stderr; returns the generation and its steps.

    Cancels the generation if writing fails.
    """
    steps = []
    try:
        for step in generation:
            steps.append(step)
            sys.stdout.write("".join(paint(text, source) if colours.text else text for text, source in step.pieces))
            sys.stdout.flush()
    finally:
        generation.cancel()
        with contextlib.suppress(BrokenPipeError):
            print(flush=True)
    if colours.text and colours.report:
        print(legend(source for step in steps for _, source in step.pieces), file=sys.stderr)
    return generation, steps


def generation_facts(generation: Any, settings: SamplingSettings) -> dict[str, Any]:
    """The counts, seconds and tokens of a generation, ready for JSON."""
    facts: dict[str, Any] = generation.stats.to_dict() | {"tokens_generated": generation.tokens}
    if settings.logprobs is not None:
        facts["logprobs"] = [asdict(each) for each in generation.log_probabilities]
    return facts


def report_lines(report: dict[str, Any], table: bool = False) -> list[str]:
    """The report as lines of text. ``table``: whether the table of sources stands before it."""
    seconds = report["seconds"]
    lines = [
        f"tokens    {report['tokens']} ({report['finish']}), {report['tokens_per_second']:.1f} tokens/s "
        f"after a prompt of {report['prompt_tokens']} tokens ({seconds['prefill']:.2f} s)",
        f"M         {report['mean_generated_length']:.2f} tokens per target pass, {report['steps']} passes",
        *(
            []
            if table
            else [f"accepted  {report['accepted']} drafted tokens{_by_source(report['accepted_by_source'])}"]
        ),
        f"drafts    {report['draft_calls']} requested, {report['nodes_verified']} nodes verified, "
        + _failed(report["draft_failures"]),
        "time      " + ", ".join(f"{part} {spent:.2f} s" for part, spent in seconds.items() if part != "prefill"),
    ]
    if report["verification"] == "typical":
        lines.append(
            "lossy     typical acceptance: the text depends on the drafts and does not follow the model's distribution"
        )
    plain = report.get("plain")
    if plain is not None:
        gap = (
            ""
            if plain["identical"]
            else f" from token {plain['position']} on, where the target's scores differ by {plain['gap']:.2g}"
        )
        lines.append(
            f"plain     {plain['tokens_per_second']:.1f} tokens/s; speed-up {plain['speed_up']:.2f}; "
            f"output identical = {'yes' if plain['identical'] else 'no' + gap}"
        )
    return lines


def _by_source(counts: dict[str, int]) -> str:
    shown = [f"{source_name(int(bits))} {count}" for bits, count in sorted(counts.items())]
    return f": {', '.join(shown)}" if shown else ""


def _failed(failures: dict[str, int]) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(failures.items()))
    return f"{sum(failures.values())} failed" + (f" ({reasons})" if reasons else "")
