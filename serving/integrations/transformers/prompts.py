"""Prompts of a left-padded batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import InvalidArgument

MOST_ROWS = 1024
"""Most rows of a batch: the slots of a step loop."""


@dataclass(frozen=True, slots=True)
class PaddedPrompt:
    """One row of a batch.

    Attributes:
        tokens: int32[n], without padding.
        padding: int64[p], the padding ids before them.
    """

    tokens: npt.NDArray[np.int32]
    padding: torch.Tensor


def read_prompts(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[PaddedPrompt]:
    """The rows of ``input_ids`` int64[batch, n].

    ``attention_mask`` [batch, n]: 0 for padding; None if nothing is padded.

    Raises:
        InvalidArgument: there are more than ``MOST_ROWS`` rows, or a row is all padding or has padding not on the left.
    """
    if len(input_ids) > MOST_ROWS:
        raise InvalidArgument(f"the batch has {len(input_ids)} rows; at most {MOST_ROWS} are decoded at once, split it")
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    prompts = []
    for row, (ids, mask) in enumerate(zip(input_ids.cpu(), attention_mask.cpu().bool(), strict=True)):
        padding = len(ids) - int(mask.sum())
        if padding == len(ids) or not bool(mask[padding:].all()):
            raise InvalidArgument(
                f"attention_mask of row {row} hides tokens that are not on the left; pad with padding_side='left'"
            )
        prompts.append(PaddedPrompt(ids[padding:].numpy().astype(np.int32), input_ids[row, :padding]))
    return prompts
