"""The trace of one step: its draft tree, the fate of each node, and its time. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suffolk.datastore.draft_tree import DraftTree

TRACED_CONTEXT = 32
"""Tokens before the draft that a trace has."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTrace:
    """What happened in one step of one request. Immutable by convention: arrays are not copied.

    Attributes:
        context: the last tokens before the draft, at most TRACED_CONTEXT, from prompt and text.
        tree: the draft as proposed, without nodes that could not be accepted because of the text's length or grammar. Scores
            are the probabilities that the path to each node is accepted.
        verified: the first nodes of ``tree`` that the target verified.
        accepted: the nodes in the text, from the root down.
        sampled: the token that the target sampled after them; None if a drafted token ended the text.
        pieces: the text of the step, as in ``Step``.
        seconds: of the whole pass by part: draft, wait, forward, verify, compact, other. All requests of a pass share them.
    """

    context: tuple[int, ...]
    tree: DraftTree
    verified: int
    accepted: tuple[int, ...]
    sampled: int | None
    pieces: tuple[tuple[str, int], ...]
    seconds: Mapping[str, float]
