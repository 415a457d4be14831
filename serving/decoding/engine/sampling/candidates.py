"""Applies temperature, and the cuts top-k, top-p and min-p. They determine the tokens that may be sampled, and their likelihoods.

Only the likeliest thousand tokens of a row are inspected. If the cuts may leave more than these, all tokens of the row are sorted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

GUESS = 1024
"""Number of likeliest tokens that are inspected. Most distributions are cut to fewer."""
PART = 2**19
"""Elements per block on a CPU. Blocks that fit into its cache take a third of the time."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens that may be sampled at each row.

    Attributes:
        values: float64[n, k], logits divided by the temperature; -inf for a token that was cut.
        tokens: int64[n, k], their ids; None if the columns are the whole vocabulary.
    """

    values: torch.Tensor
    tokens: torch.Tensor | None

    def scatter(self, values: torch.Tensor, vocab_size: int, fill: float) -> torch.Tensor:
        """float64[n, vocab_size]: ``values`` [n, k] of these tokens at their ids, ``fill`` elsewhere."""
        if self.tokens is None:
            return values
        return values.new_full((len(values), vocab_size), fill).scatter_(1, self.tokens, values)


def select_candidates(logits: torch.Tensor, settings: SamplingSettings) -> Candidates:
    """The tokens of ``logits`` float[n, vocab] that remain after temperature (above 0), top-k, top-p and min-p, in this order.

    Ties with the last kept token are kept too, so that the result does not depend on the order of a sort.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    vocab_size = logits.shape[-1]
    # a tensor: on CUDA, torch multiplies by the reciprocal of a number, which is another float
    temperature = logits.new_full((), settings.temperature, dtype=torch.float64)
    if keeps_all(settings, vocab_size):
        return Candidates(logits.to(torch.float64, copy=True).div_(temperature), None)
    top_k = settings.top_k if settings.top_k < vocab_size else 0
    total = None if top_k or settings.top_p == 1.0 else _total(logits, temperature)
    best, tokens = logits.topk(min(max(GUESS, top_k + 1), vocab_size), dim=-1)
    values = best.to(torch.float64).div_(temperature)
    outer, floor = _floors(values, total, top_k, settings)
    last = values[:, -1:]
    # the cuts keep even the last inspected token, so they may keep tokens that were not inspected
    wide = ((last >= outer) & (last > -torch.inf)).flatten()
    if values.shape[-1] == vocab_size or not bool(wide.any()):
        values = values.masked_fill_(values < floor, -torch.inf)
        kept = max(1, int((values > -torch.inf).sum(-1).max()))  # at least one, even of NaN logits
        return Candidates(values[:, :kept], tokens[:, :kept])
    values = _sorted(logits[wide]).to(torch.float64).div_(temperature)
    floor[wide] = _floors(values, None if total is None else total[wide], top_k, settings)[1]
    values = logits.to(torch.float64, copy=True).div_(temperature)
    return Candidates(values.masked_fill_(values < floor, -torch.inf), None)


def keeps_all(settings: SamplingSettings, vocab_size: int) -> bool:
    """Whether top-k, top-p and min-p leave all tokens."""
    return not 0 < settings.top_k < vocab_size and settings.top_p == 1.0 and settings.min_p == 0.0


def _total(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """``total_weight``, in blocks of rows."""
    rows = max(1, PART // logits.shape[-1])
    return torch.cat([total_weight(part, temperature) for part in torch.split(logits, rows)])


def total_weight(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """float64[n, 1], the sum of exp((logits - max) / temperature). ``temperature``: of no dimension, or float32[n, 1]."""
    weights = (logits - logits.amax(-1, keepdim=True)).div_(temperature).exp_()
    return weights.sum(-1, keepdim=True, dtype=torch.float64)


def _sorted(logits: torch.Tensor) -> torch.Tensor:
    """The values of each row, the largest first. On a CPU numpy sorts them, because it is about thirty times as fast as torch."""
    if logits.device.type != "cpu":
        return logits.sort(dim=-1, descending=True).values
    return torch.from_numpy(np.sort(logits.numpy(), axis=-1)).flip(-1)


def _floors(
    values: torch.Tensor, total: torch.Tensor | None, top_k: int, settings: SamplingSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two float64[n, 1]: the least value that top-k keeps, and the least value that all cuts keep. Without top-k both are equal.

    ``values`` [n, size] are sorted, the largest first; ``total`` is the sum of all exp(value - largest) if top-k is off.
    """
    outer = floor = values[:, top_k - 1 : top_k] if top_k else torch.full_like(values[:, :1], -torch.inf)
    if settings.top_p < 1.0:
        weights = weights_above(values, floor)
        total = weights.sum(-1, keepdim=True) if total is None else total
        floor = floor.maximum(nucleus_floor(values, weights, total, settings.top_p))
    if settings.min_p > 0.0:
        floor = floor.maximum(values[:, :1] + math.log(settings.min_p))
    return (outer if top_k else floor), floor


def weights_above(values: torch.Tensor, floor: torch.Tensor) -> torch.Tensor:
    """float64[n, size], exp(value - largest) of sorted ``values``, 0 for values below ``floor`` float64[n, 1]."""
    return (values - values[:, :1]).exp_().masked_fill_(values < floor, 0.0)


def nucleus_floor(
    values: torch.Tensor, weights: torch.Tensor, total: torch.Tensor, top_p: torch.Tensor | float
) -> torch.Tensor:
    """float64[n, 1], the least of the sorted ``values`` that top-p keeps; ``total`` is the sum of the weights of all tokens."""
    held = weights.cumsum(-1).div_(total)
    last = (held < top_p).sum(-1, keepdim=True).clamp_(max=values.shape[-1] - 1)
    return values.gather(-1, last)
