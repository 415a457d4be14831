"""Shows the text of a generation as it comes, coloured by source. Writes the report, and the page of ``--trace``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.cli.generate_options import Options
from suffolk.cli.source_colours import Colours, legend, paint
from suffolk.datastore.draft_tree import RETRIEVED
from suffolk.datastore.files import write_text
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.step import Step, StepTrace
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.playground.pages import report_page
from suffolk.serving.worker.traces import Passages, find_passages, trace_json

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.loop.generation import Generation
    from suffolk.serving.worker.client import RemoteGeneration


def show(generation: Generation | RemoteGeneration, colours: Colours) -> list[Step]:
    """Write the text to stdout as it comes, and the colours' legend to stderr; returns the steps.

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
    return steps


def generation_facts(generation: Generation | RemoteGeneration, settings: SamplingSettings) -> dict[str, Any]:
    """The counts, seconds and tokens of a generation, ready for JSON."""
    facts: dict[str, Any] = generation.stats.to_dict() | {"tokens_generated": generation.tokens}
    if settings.logprobs is not None:
        facts["logprobs"] = [asdict(each) for each in generation.log_probabilities]
    return facts


def report_lines(report: dict[str, Any], table: bool = False) -> list[str]:
    """The report as lines of text. ``table``: whether the table of sources is printed before the report."""
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


_PASSAGES = 2
"""Number of passages shown for each accepted token."""


@dataclass(frozen=True, slots=True)
class TracedAnswer:
    """One answer on the page of ``--trace``. Its steps have traces."""

    title: str
    drafter: str
    steps: Sequence[Step]


def shown_settings(options: Options) -> dict[str, Any]:
    """The settings that the page names."""
    return {
        "temperature": options.temperature,
        "seed": options.seed,
        "most tokens": options.max_new_tokens,
        "most draft nodes": options.max_nodes,
        "verification": options.verification,
    }


def write_trace(
    file: Path, facts: dict[str, Any], answers: Sequence[TracedAnswer], tokenizer: Any, stores: Sequence[Retriever]
) -> None:
    """Write the page of ``answers`` to ``file``. ``facts``: model, prompt and settings, as for ``report_page``.
    Raises the errors of ``write_text``.
    """
    from suffolk.serving.worker.openai.token_texts import TokenTexts  # imports transformers

    texts = TokenTexts(tokenizer)
    found = [
        {
            "title": answer.title,
            "drafter": answer.drafter,
            "steps": [trace_json(trace, texts.text) for step in answer.steps for trace in step.traces],
            "passages": _passages([trace for step in answer.steps for trace in step.traces], tokenizer, stores),
        }
        for answer in answers
    ]
    write_text(file, report_page({**facts, "answers": found}))


def _passages(
    traces: Sequence[StepTrace], tokenizer: Any, stores: Sequence[Retriever]
) -> dict[str, dict[str, list[Passages]]]:
    """Map from "STEP.NODE" to the passages of each accepted node that a datastore proposed."""
    found = {}
    for at, trace in enumerate(traces):
        context = list(trace.context)
        for node in trace.accepted:
            context.append(int(trace.tree.tokens[node]))
            if trace.tree.sources[node] & RETRIEVED:
                passages = [find_passages(store, context, tokenizer, _PASSAGES) for store in stores]
                found[f"{at}.{node}"] = {"datastores": passages}
    return found
