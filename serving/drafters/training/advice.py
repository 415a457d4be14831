"""What to say of a corpus from which nothing can be learnt."""

from __future__ import annotations

from collections import Counter

from suffolk.serving.drafters.training.options import TrainOptions

_MOST_REASONS = 3
_ADVICE = {
    "no chat template": "use a model that has one, or give texts",
    "no answer of an assistant": "give conversations in which an assistant answers",
    "the chat template refuses": "write conversations as the model's template takes them",
    "no question to answer": "give conversations that end with a question or its answer",
    "empty prompts": "give longer texts",
    "no room in a window": "give a larger window, or shorter prompts",
    "documents": "give longer texts",
}
"""Part of a reason why something was left out -> what helps."""
_REGENERATED = "raise max_new_tokens, or give longer prompts"


def nothing_to_learn(options: TrainOptions, needed: int, longest: int, skipped: Counter[str]) -> str:
    """Why the corpus teaches nothing, and what helps against the reason that counts most.

    ``needed``: tokens of a document; ``longest``: what the longest has. ``skipped``: how many were left out, by reason.
    """
    reasons = [(reason, count) for reason, count in skipped.most_common(_MOST_REASONS) if count]
    said = ", ".join(f"{count} {reason}" for reason, count in reasons) or "no documents at all"
    first = reasons[0][0] if reasons else ""
    advice = next((words for part, words in _ADVICE.items() if part in first), "name files with text or conversations")
    if first.startswith("documents"):
        said += f"; a document needs {needed} tokens, two more than the head's depth, and the longest has {longest}"
        advice = advice if options.regenerate is None else _REGENERATED
    return f"corpus {' '.join(options.corpora)}: nothing to learn from ({said}); {advice}"
