"""The result of one target pass for one request. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from suffolk.serving.decoding.engine.loop.step_trace import StepTrace
from suffolk.serving.decoding.engine.sampling.log_probabilities import LogProbability

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one target pass for one request. Engines and workers return the same steps.

    Attributes:
        tokens: token ids, one or more.
        sources: per token, the source bits of the drafters that proposed it; 0 if the target sampled it.
        pieces: (text, source bits) pairs: decoded text that cannot change any more; empty without a tokenizer.
        finish: finish reason (eos, stop, length, context) of the last step, else empty.
        log_probabilities: per token, if the request asks for them, else empty.
        traces: the step's trace, if the request asks for it; several if a worker joined steps; else empty.
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
