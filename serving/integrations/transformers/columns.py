"""The growing batch of a ``generate`` call. Rows advance at different speeds. Columns are completed in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from suffolk.serving.integrations.transformers.row_loop import RowStep


class Columns:
    """Completes a column when all running rows have its token.

    Scores, stopping criteria and streamer then act as in ``generate``.

    Not thread-safe.

    Attributes:
        keeps_logits: whether the result has scores or logits.
        ended: whether all rows have finished.
    """

    def __init__(
        self,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        config: GenerationConfig,
        streamer: Any = None,
    ) -> None:
        """``input_ids``: int64[batch, n]."""
        self.keeps_logits = bool(config.return_dict_in_generate and (config.output_scores or config.output_logits))
        self.ended = False
        self._ids = input_ids
        self._processor: Any = logits_processor
        self._criteria = stopping_criteria
        self._config: Any = config
        self._streamer = streamer
        self._pads = any(hasattr(criterion, "eos_token_id") for criterion in stopping_criteria)
        """Whether finished rows are padded. Otherwise they continue until all have finished, as in ``generate``."""
        self._rows: list[list[int]] = [[] for _ in input_ids]
        self._logits: list[list[torch.Tensor]] = [[] for _ in input_ids]
        self._running = [True] * len(input_ids)
        self._finished = [False] * len(input_ids)
        self._exhausted = [False] * len(input_ids)
        self._scores: tuple[torch.Tensor, ...] = ()
        self._raw: tuple[torch.Tensor, ...] = ()
        self._done = 0

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a row."""
        found: set[int] = set()
        for criterion in self._criteria:
            ids = getattr(criterion, "eos_token_id", None)
            found |= set() if ids is None else set(torch.as_tensor(ids).flatten().tolist())
        return frozenset(found)

    def extend(self, steps: Iterable[RowStep]) -> list[int]:
        """Add new tokens, and complete the columns that all running rows have. Returns the rows that finished."""
        for step in steps:
            self._rows[step.row] += step.tokens
            self._exhausted[step.row] |= step.last
            if step.logits is not None:
                self._logits[step.row] += list(step.logits)
        before = list(self._running)
        while not self.ended and self._is_complete():
            self._complete()
        return [row for row, was in enumerate(before) if was and not self._running[row]]

    def result(self) -> GenerateDecoderOnlyOutput | torch.Tensor:
        """The return value of ``generate``."""
        if self._streamer is not None:
            self._streamer.end()
        if not self._config.return_dict_in_generate:
            return self._ids
        found: dict[str, Any] = {"sequences": self._ids}
        if self._config.output_scores:
            found["scores"] = self._scores
        if self._config.output_logits:
            found["logits"] = self._raw
        return GenerateDecoderOnlyOutput(**found)

    def _is_complete(self) -> bool:
        return all(
            len(tokens) > self._done or self._exhausted[row]
            for row, tokens in enumerate(self._rows)
            if self._running[row]
        )

    def _complete(self) -> None:
        for row, tokens in enumerate(self._rows):
            if self._running[row] and len(tokens) <= self._done:  # the model's context is full
                self._running[row], self._finished[row] = False, True
        if not any(self._running):
            self.ended = True
            return
        if self.keeps_logits:
            self._add_scores()
        column = self._column()
        self._ids = torch.cat([self._ids, column[:, None]], 1)
        self._done += 1
        done = self._criteria(self._ids, self._scores if self._config.output_scores else None)
        for row, ends in enumerate(done.tolist()):
            self._finished[row] |= ends
            if self._pads and ends:
                self._running[row] = False
        if self._streamer is not None:
            self._streamer.put(column.cpu())
        self.ended = all(self._finished)

    def _column(self) -> torch.Tensor:
        """Return int64[batch], the tokens of the column; padding for finished rows."""
        padding = self._config._pad_token_tensor
        column = [
            tokens[self._done] if running else int(padding)
            for tokens, running in zip(self._rows, self._running, strict=True)
        ]
        return torch.tensor(column, dtype=self._ids.dtype, device=self._ids.device)

    def _add_scores(self) -> None:
        """Add the column's logits and scores. Finished rows get 0."""
        empty = torch.zeros_like(next(each[self._done] for each in self._logits if len(each) > self._done))
        rows = [each[self._done] if self._running[row] else empty for row, each in enumerate(self._logits)]
        logits = torch.stack(rows).to(self._ids.device, torch.float32)
        self._scores += (self._processor(self._ids, logits.clone()),)
        self._raw += (logits,)
