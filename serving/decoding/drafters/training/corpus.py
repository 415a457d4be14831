"""Cuts a corpus into windows for training, and held-out windows for evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.drafters.training.documents import TrainingDocument, is_held_out
from suffolk.serving.decoding.drafters.training.options import TrainOptions

AHEAD = 2
"""First tokens of a window, which no draft of ReDrafter or EAGLE predicts: a token with hidden states, and the next token, which
the head reads. A draft of an early exit begins one token earlier."""

_MOST_REASONS = 3
_ADVICE = {
    "no chat template": "use a model that has one, or give texts",
    "no answer of an assistant": "give conversations in which an assistant answers",
    "the chat template rejects": "write conversations as the model's template takes them",
    "no question to answer": "give conversations that end with a question or its answer",
    "empty prompts": "give longer texts",
    "no room in a window": "give a larger window, or shorter prompts",
    "documents": "give longer texts",
}
"""Part of a reason for skipping data -> advice."""
_REGENERATED = "raise max_new_tokens, or give longer prompts"


class Window(NamedTuple):
    """A part of one document: tokens int32[n], and ``counted`` bool[n], whether the loss of each token counts."""

    tokens: npt.NDArray[np.int32]
    counted: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Windows for training, and held-out windows.

    Attributes:
        training, held_out: windows of different documents.
        documents, held_out_documents: number of documents in each part.
        tokens: number of tokens for training.
        counted: number of counted tokens for training.
        skipped: number of skipped files, rows and documents, by reason.
    """

    training: tuple[Window, ...]
    held_out: tuple[Window, ...]
    documents: int
    held_out_documents: int
    tokens: int
    counted: int
    skipped: Counter[str]

    @property
    def windows(self) -> tuple[Window, ...]:
        """All windows. Windows for training come first."""
        return self.training + self.held_out

    def to_dict(self) -> dict[str, Any]:
        """Sizes of the corpus, as values of JSON."""
        return {
            "documents": self.documents,
            "windows": len(self.training),
            "tokens": self.tokens,
            "counted_tokens": self.counted,
            "held_out_documents": self.held_out_documents,
            "held_out_windows": len(self.held_out),
            "skipped": {reason: count for reason, count in self.skipped.items() if count},
        }


def make_corpus(
    documents: Iterable[TrainingDocument], options: TrainOptions, depth: int, skipped: Counter[str]
) -> Corpus:
    """Cut ``documents`` into windows. ``depth``: the number of tokens that the head drafts.

    Raises InvalidArgument if no window is left for training or for evaluation.
    """
    needed = depth + AHEAD
    if options.window < needed:
        raise InvalidArgument(
            Field("window"), f" is {options.window}; a head of depth {depth} needs {needed} tokens or more"
        )
    used: list[tuple[bytes, list[Window]]] = []
    longest = 0
    for document in documents:
        longest = max(longest, len(document.tokens))
        windows = list(cut(document, options.window, needed))
        if not windows:
            short = len(document.tokens) < needed
            skipped[f"documents of fewer than {needed} tokens" if short else "documents in which nothing counts"] += 1
            continue
        used.append((document.key, windows))
    if not used:
        raise InvalidArgument(_nothing_to_learn(options, needed, longest, skipped))
    chosen = _choose_held_out([key for key, _ in used], options, skipped)
    training = [window for key, windows in used if key not in chosen for window in windows]
    held_out = [window for key, windows in used if key in chosen for window in windows]
    held_out_documents = sum(key in chosen for key, _ in used)
    return Corpus(
        training=tuple(training),
        held_out=tuple(held_out),
        documents=len(used) - held_out_documents,
        held_out_documents=held_out_documents,
        tokens=sum(len(window.tokens) for window in training),
        counted=sum(int(window.counted.sum()) for window in training),
        skipped=skipped,
    )


def cut(document: TrainingDocument, size: int, needed: int) -> Iterator[Window]:
    """Cut a document into windows of up to ``size`` tokens.

    Windows of fewer than ``needed`` tokens, and windows in which no draft reaches a counted token, are skipped.
    """
    for begin in range(0, len(document.tokens), size):
        window = Window(document.tokens[begin : begin + size], document.counted[begin : begin + size])
        if len(window.tokens) >= needed and window.counted[AHEAD:].any():
            yield window


def _choose_held_out(keys: list[bytes], options: TrainOptions, skipped: Counter[str]) -> set[bytes]:
    """The keys of the documents that are held out. The lowest key is always held out, the highest never.

    Raises InvalidArgument: there is only one document, or all are copies of one. The message gives the reasons in ``skipped``.
    """
    if not options.held_out:
        return set()
    if min(keys) == max(keys):
        found = "it is one document" if len(keys) == 1 else f"its {len(keys)} documents are copies of one"
        if reasons := _reasons(skipped):
            found += f" (left out: {', '.join(reasons)})"
        raise InvalidArgument(
            f"corpus {' '.join(options.corpora)}: {found}, so none can be held out for evaluation; give more text, or "
            f"set ",
            Field("held_out"),
            " to 0 to train without evaluation",
        )
    share = {key for key in keys if is_held_out(key, options.held_out)}
    return (share | {min(keys)}) - {max(keys)}


def _reasons(skipped: Counter[str]) -> list[str]:
    """The most frequent reasons for leaving documents out, each after its count."""
    return [f"{count} {reason}" for reason, count in skipped.most_common(_MOST_REASONS) if count]


def _nothing_to_learn(options: TrainOptions, needed: int, longest: int, skipped: Counter[str]) -> str:
    """The error message for a corpus without usable documents, with advice for the most frequent reason.

    ``needed``: least tokens of a document. ``longest``: tokens of the longest document. ``skipped``: counts by reason.
    """
    reasons = _reasons(skipped)
    found = ", ".join(reasons) or "no documents at all"
    first = reasons[0].partition(" ")[2] if reasons else ""
    advice = next((words for part, words in _ADVICE.items() if part in first), "name files with text or conversations")
    if first.startswith("documents"):
        found += f"; a document needs {needed} tokens, two more than the head's depth, and the longest has {longest}"
        advice = advice if options.regenerate is None else _REGENERATED
    return f"corpus {' '.join(options.corpora)}: nothing to learn from ({found}); {advice}"
