"""The result of one target pass for one request, and its trace. Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability

if TYPE_CHECKING:
    import torch

TRACED_CONTEXT = 32
"""The most tokens before the draft that a trace holds."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTrace:
    """The trace of one step of one request. Immutable by convention: arrays are not copied.

    Attributes:
        context: the last tokens before the draft, at most TRACED_CONTEXT, from prompt and text.
        tree: the draft as proposed, without nodes that could not be accepted because of the text's length or grammar. Scores
            are the probabilities that the path to each node is accepted.
        verified: how many nodes the target verified, from the first of ``tree`` on.
        accepted: indices of the accepted nodes that are in the text, from the root down.
        sampled: the token that the target sampled after the accepted nodes; None if a drafted token ended the text.
        pieces: the text of the step, as in ``Step``.
        seconds: seconds of the whole pass by part: draft, wait, forward, verify, compact, other. All requests of a pass share them.
    """

    context: tuple[int, ...]
    tree: DraftTree
    verified: int
    accepted: tuple[int, ...]
    sampled: int | None
    pieces: tuple[tuple[str, int], ...]
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one target pass for one request. Engines and workers return the same steps.

    Attributes:
        tokens: token ids, one or more.
        sources: per token, the source bits of the drafters that proposed it; 0 if the target sampled it.
        pieces: (text, source bits) pairs: decoded text that cannot change any more; empty without a tokenizer.
        finish: finish reason (eos, stop, length, context) of the last step, else empty.
        log_probabilities: per token, if the request asks for them, else empty.
        traces: the step's trace, if the request asks for it, else empty. Several if a worker joined steps.
        logits: float[tokens, vocab], the target's unprocessed logits of the tokens, in fp32 at least; None unless the request
            keeps them.
    """

    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    pieces: tuple[tuple[str, int], ...]
    finish: str
    log_probabilities: tuple[LogProbability, ...] = ()
    traces: tuple[StepTrace, ...] = ()
    logits: torch.Tensor | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)
