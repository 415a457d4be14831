"""Samples all rows of a pass, each with its own settings. The host reads no values meanwhile, so a CUDA graph can do the
sampling.

``Sampler`` takes the same token from the same logits. As in ``Sampler``, the sums for top-p may differ in the last bit between
passes with different numbers of rows.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.engine.model.device_step import UNDECIDED
from suffolk.serving.decoding.engine.sampling.candidates import (
    GUESS,
    PART,
    keeps_all,
    nucleus_floor,
    total_weight,
    weights_above,
)
from suffolk.serving.decoding.engine.sampling.seeded_noise import gumbel_noise
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

GREEDY, CUT, WHOLE = range(3)
"""Kinds of sampling. GREEDY takes the likeliest token. Above temperature 0, CUT samples from the tokens that top-k, top-p and
min-p leave, and WHOLE samples from all tokens."""
_DEVICE_PART = 8 * PART
"""Elements per block on a GPU, so that an operation's result takes 32 MiB."""


def row_settings(settings: SamplingSettings, vocab_size: int, key: int) -> npt.NDArray[np.int64] | None:
    """int64[6], as ``sample_rows`` reads them: the kind, ``key``, top-k, and float64 bits of temperature, top-p and log min-p.

    The kind is ``GREEDY``, ``CUT`` or ``WHOLE``. None if top-k leaves more tokens than ``sample_rows`` inspects. ``key``: the key
    of ``SeededNoise``.
    """
    top_k = settings.top_k if settings.top_k < vocab_size else 0
    if top_k >= GUESS:
        return None
    kind = WHOLE if keeps_all(settings, vocab_size) else CUT
    least = math.log(settings.min_p) if settings.min_p > 0.0 else -math.inf
    floats = np.array([settings.temperature, settings.top_p, least]).view(np.int64)
    return np.array([kind if settings.temperature > 0.0 else GREEDY, key, top_k, *floats], np.int64)


@torch.inference_mode()
def sample_rows(logits: torch.Tensor, positions: torch.Tensor, settings: torch.Tensor, kind: int) -> torch.Tensor:
    """int64[n], the token sampled at each row; ``UNDECIDED`` where top-p or min-p may leave more than ``GUESS`` tokens.

    Args:
        logits: float[n, vocab], unprocessed.
        positions: int64[n], the position of each row's sample in its text.
        settings: int64[6, n], a column of ``row_settings`` for each row.
        kind: the highest kind of the rows.
    """
    sampled = likeliest(logits)
    if kind == GREEDY:
        return sampled
    size = max(1, (PART if logits.device.type == "cpu" else _DEVICE_PART) // logits.shape[-1])
    for start in range(0, len(logits), size):
        rows = slice(start, start + size)
        part = logits[rows].to(torch.promote_types(logits.dtype, torch.float32)), positions[rows], settings[:, rows]
        scores, tokens, wide = cut_scores(*part)
        found = tokens.gather(1, scores.argmax(-1, keepdim=True))[:, 0].masked_fill_(wide, UNDECIDED)
        sampled[rows] = torch.where(settings[0, rows] == CUT, found, sampled[rows])
        if kind == WHOLE:
            sampled[rows] = torch.where(settings[0, rows] == WHOLE, whole_scores(*part).argmax(-1), sampled[rows])
    return sampled


def cut_scores(
    logits: torch.Tensor, positions: torch.Tensor, settings: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The scores of the likeliest tokens float64[n, k], -inf for cut tokens; their ids; and bool[n], the undecided rows."""
    top_k = settings[2, :, None]
    temperature, top_p, least = settings[3:].view(torch.float64)[:, :, None]
    likely, tokens = logits.topk(min(GUESS, logits.shape[-1]), dim=-1)
    values = likely.to(torch.float64).div_(temperature)
    best, last, nothing = values[:, :1], values[:, -1:], torch.full_like(temperature, -torch.inf)
    outer = torch.where(top_k > 0, values.gather(-1, top_k.sub(1).clamp_(min=0)), nothing)
    weights = weights_above(values, outer)
    total = torch.where(top_k > 0, weights.sum(-1, keepdim=True), total_weight(logits, temperature.to(logits.dtype)))
    floor = outer.maximum(torch.where(top_p < 1.0, nucleus_floor(values, weights, total, top_p), nothing))
    floor = floor.maximum(torch.where(least > -torch.inf, best + least, nothing))
    # the cuts keep even the last inspected token, so they may keep tokens that were not inspected
    wide = (last >= torch.where(top_k > 0, outer, floor)) & (last > -torch.inf) & (len(tokens[0]) < logits.shape[-1])
    noise = gumbel_noise(settings[1, :, None], positions[:, None], tokens)
    return values.masked_fill_(values < floor, -torch.inf).add_(noise), tokens, wide[:, 0]


def whole_scores(logits: torch.Tensor, positions: torch.Tensor, settings: torch.Tensor) -> torch.Tensor:
    """The scores of all tokens, float64[n, vocab]."""
    tokens = torch.arange(logits.shape[-1], device=logits.device)
    noise = gumbel_noise(settings[1, :, None], positions[:, None], tokens)
    return logits.to(torch.float64, copy=True).div_(settings[3].view(torch.float64)[:, None]).add_(noise)


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """int64[rows], the id of the highest of ``logits`` float[rows, vocab]; the smallest of several such ids."""
    if logits.device.type != "cpu":
        return logits.argmax(-1)
    values = logits.float() if logits.dtype.itemsize < 4 else logits
    return torch.from_numpy(values.numpy().argmax(-1))  # torch takes seven times as long
