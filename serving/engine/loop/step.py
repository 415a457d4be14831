"""The result of one target pass for one request. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from suffolk.serving.engine.loop.step_trace import StepTrace
from suffolk.serving.engine.sampling.log_probabilities import LogProbability


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
    """

    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    pieces: tuple[tuple[str, int], ...]
    finish: str
    log_probabilities: tuple[LogProbability, ...] = ()
    traces: tuple[StepTrace, ...] = ()

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)
