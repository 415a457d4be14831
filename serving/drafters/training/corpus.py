"""A corpus as windows of tokens to train on, and others that measure the head and are never trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datastore.errors import InvalidArgument
from serving.drafters.training.documents import Document, is_held_out
from serving.drafters.training.options import TrainOptions

AHEAD = 2
"""Tokens of a window that no draft can reach: a draft stands behind a token with features and the one that follows it."""


class Window(NamedTuple):
    """A part of one document: tokens int32[n], and which of them count, bool[n]."""

    tokens: npt.NDArray[np.int32]
    counted: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Windows to train on and held-out ones.

    Attributes:
        training, held_out: windows of different documents.
        documents, held_out_documents: how many of either are used.
        tokens, counted: of the windows to train on, all and those that count.
        skipped: how many files, rows and documents were left out, by reason.
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
        """All of them, those to train on first."""
        return self.training + self.held_out

    def to_dict(self) -> dict[str, Any]:
        """Its sizes."""
        return {
            "documents": self.documents,
            "windows": len(self.training),
            "tokens": self.tokens,
            "counted_tokens": self.counted,
            "held_out_documents": self.held_out_documents,
            "held_out_windows": len(self.held_out),
            "skipped": {reason: count for reason, count in self.skipped.items() if count},
        }


def make_corpus(documents: Iterable[Document], options: TrainOptions, depth: int, skipped: Counter[str]) -> Corpus:
    """Cut ``documents`` into windows. ``depth``: how many tokens ahead the head drafts.

    Raises:
        InvalidArgument: nothing is left to train on, or to measure with, and why.
    """
    needed = depth + AHEAD
    if options.window < needed:
        raise InvalidArgument(f"window is {options.window}; a head of depth {depth} needs {needed} tokens or more")
    sides: tuple[list[Window], list[Window]] = [], []
    used = [0, 0]
    longest = 0
    for document in documents:
        longest = max(longest, len(document.tokens))
        side = int(is_held_out(document.key, options.held_out))
        windows = list(cut(document, options.window, needed))
        if not windows:
            short = len(document.tokens) < needed
            skipped[f"documents of fewer than {needed} tokens" if short else "documents in which nothing counts"] += 1
            continue
        used[side] += 1
        sides[side].extend(windows)
    training, held_out = sides
    if not training and not held_out:
        raise InvalidArgument(_nothing(options, needed, longest, skipped))
    _require_both(options, used)
    return Corpus(
        training=tuple(training),
        held_out=tuple(held_out),
        documents=used[0],
        held_out_documents=used[1],
        tokens=sum(len(window.tokens) for window in training),
        counted=sum(int(window.counted.sum()) for window in training),
        skipped=skipped,
    )


def cut(document: Document, size: int, needed: int) -> Iterator[Window]:
    """Its windows of up to ``size`` tokens, one behind the other: those of ``needed`` tokens or more in which a draft can reach a
    token that counts. They never hold two documents, so that there is no border to learn wrongly.
    """
    for begin in range(0, len(document.tokens), size):
        window = Window(document.tokens[begin : begin + size], document.counted[begin : begin + size])
        if len(window.tokens) >= needed and window.counted[AHEAD:].any():
            yield window


def _require_both(options: TrainOptions, used: list[int]) -> None:
    total = sum(used)
    if not used[0]:
        raise InvalidArgument(
            f"held_out is {options.held_out}: that takes all {total} documents of the corpus; give more text, or a smaller share"
        )
    if options.held_out and not used[1]:
        raise InvalidArgument(
            f"held_out is {options.held_out}: that leaves none of {total} documents to measure with; give more text, a larger "
            "share, or 0 to train without a measure"
        )


def _nothing(options: TrainOptions, needed: int, longest: int, skipped: Counter[str]) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items() if count) or "no documents at all"
    return (
        f"corpus {' '.join(options.corpora)}: nothing to learn from ({reasons}); a document needs {needed} tokens, two more than "
        f"the head's depth, and the longest has {longest}; give longer texts"
    )
