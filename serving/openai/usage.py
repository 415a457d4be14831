"""``usage`` of a response: its token counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffolk.serving.openai.text_run import TextRun


def usage(runs: Sequence[TextRun]) -> dict[str, Any]:
    """The counts of all texts of a request so far. A prompt with several texts counts once.

    The counts of a prediction are present only if one was sent. Rejected tokens are prediction tokens that are missing
    from the text.
    """
    stats = [run.stats for run in runs]
    prompt = sum(run.stats.prompt_tokens for run in runs if run.first_of_prompt)
    completion = sum(each.tokens for each in stats)
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if any(run.call.options.prediction is not None for run in runs):
        counts["completion_tokens_details"] = {
            "accepted_prediction_tokens": sum(each.accepted_prediction_tokens for each in stats),
            "rejected_prediction_tokens": sum(each.rejected_prediction_tokens for each in stats),
        }
    return counts
