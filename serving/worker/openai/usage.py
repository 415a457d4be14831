"""``usage`` of a response: its token counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.serving.worker.openai.text_run import TextRun


def usage(runs: Sequence[TextRun]) -> dict[str, Any]:
    """The counts of all texts of a request so far. A prompt with several texts counts once.

    Cached tokens of the prompt were not read: the worker had the rows of another text that begins like it.

    The counts of a prediction are present only if one was sent. Rejected tokens are prediction tokens that are missing
    from the text.
    """
    stats = [run.stats for run in runs]
    prompts = [run.stats for run in runs if run.first_of_prompt]
    prompt = sum(each.prompt_tokens for each in prompts)
    completion = sum(each.tokens for each in stats)
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in prompts)},
    }
    if any(run.call.options.prediction is not None for run in runs):
        counts["completion_tokens_details"] = {
            "accepted_prediction_tokens": sum(each.accepted_prediction_tokens for each in stats),
            "rejected_prediction_tokens": sum(each.rejected_prediction_tokens for each in stats),
        }
    return counts
