"""The page of ``suffolk generate --trace``: the steps of the answers, and the passages of accepted drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.datastore.draft_tree import RETRIEVED
from suffolk.datastore.files import write_text
from suffolk.datastore.retriever import Retriever
from suffolk.serving.decoding.engine.loop.step import Step, StepTrace
from suffolk.serving.net.playground.pages import report_page
from suffolk.serving.worker.passages import Passages, find_passages
from suffolk.serving.worker.trace_json import trace_json

if TYPE_CHECKING:
    from suffolk.cli.generate_options import Options

_PASSAGES = 2
"""Passages of each accepted token."""


@dataclass(frozen=True, slots=True)
class TracedAnswer:
    """One answer of the page. Its steps have traces."""

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
    Raises as ``write_text``.
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
    """The passages of each accepted node that a datastore proposed, from "STEP.NODE"."""
    found = {}
    for at, trace in enumerate(traces):
        context = list(trace.context)
        for node in trace.accepted:
            context.append(int(trace.tree.tokens[node]))
            if trace.tree.sources[node] & RETRIEVED:
                passages = [find_passages(store, context, tokenizer, _PASSAGES) for store in stores]
                found[f"{at}.{node}"] = {"datastores": passages}
    return found
