"""Applies the logits processors of a batch to the draft tree of one row."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(texts int64[k, n], scores float[k, vocab]) -> scores float[k, vocab]."""
_ROWWISE = frozenset(
    getattr(transformers, name)
    for name in (
        "EpsilonLogitsWarper", "EtaLogitsWarper", "ForcedEOSTokenLogitsProcessor", "InfNanRemoveLogitsProcessor",
        "LogitNormalization", "MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor", "MinPLogitsWarper",
        "NoBadWordsLogitsProcessor", "NoRepeatNGramLogitsProcessor", "SequenceBiasLogitsProcessor",
        "SuppressTokensLogitsProcessor", "TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper",
        "TypicalLogitsWarper",
    )
)  # fmt: skip
"""Processors whose result for a row depends only on that row. They accept any number of rows."""


def row_processors(
    processors: LogitsProcessorList, row: int, batch: int, padding: torch.Tensor
) -> tuple[Processor, ...]:
    """Return the processors of ``row`` of ``batch``, as one function of texts without padding; empty if there are none.

    The processors get the texts with ``padding`` (int64[p]) in front, as in ``generate``.
    """
    if not processors:
        return ()
    own = [_of_row(each, row, batch) for each in processors]

    def process(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        padded = torch.cat([padding.to(texts.device).expand(len(texts), -1), texts], 1)
        for each in own:
            scores = each(padded, scores)
        return scores

    return (process,)


def _of_row(processor: Processor, row: int, batch: int) -> Processor:
    if type(processor) in _ROWWISE:
        return processor
    if type(processor) is RepetitionPenaltyLogitsProcessor:
        ignored = processor.prompt_ignore_length
        own = int(ignored[row]) if isinstance(ignored, torch.Tensor) else ignored
        return RepetitionPenaltyLogitsProcessor(processor.penalty, own)

    def one_by_one(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Each text replaces ``row`` in a full batch, because a processor can depend on the row number."""
        results = [
            processor(text.expand(batch, -1).clone(), own.expand(batch, -1).clone())[row]
            for text, own in zip(texts, scores, strict=True)
        ]
        return torch.stack(results)

    return one_by_one
