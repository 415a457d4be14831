"""Attention of a tree's rows in two parts: the cached tokens, which all rows see, and the rows themselves, of which each sees its
ancestors. The parts are merged by their log-sum-exp, so that the mask never grows with the context.

What it gains depends on the device's kernels: with a mask torch takes slower ones, without one there are more calls.
``Target.wrap`` therefore measures both once (``measure_split``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F

from suffolk.serving.engine.model.kv_cache import LayerShape

TRIED_CONTEXTS = (1024, 4096)
_TRIED_ROWS = 16
_ROUNDS = 5
_CLEARLY = 0.95
"""The split is taken where it needs less than this share of the masked way's time."""
_FLASH_WIDTH = 256


def split_attention(
    rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, cached: int, scaling: float
) -> torch.Tensor:
    """[1, heads, rows, value width], as ``F.scaled_dot_product_attention`` with a mask that hides none of the cached tokens.

    Args:
        rows: [1, heads, rows, key width].
        keys, values: [1, heads, cached + own, width].
        mask: additive, [rows, own]; each row sees one of its own keys at least.
        cached: keys that all rows see; 1 or more (torch's kernel for CPUs divides by their number).
    """
    context = _with_log_sum(rows, keys[:, :, :cached], values[:, :, :cached], None, scaling)
    own = _with_log_sum(rows, keys[:, :, cached:], values[:, :, cached:], mask, scaling)
    share = torch.sigmoid(context[1] - own[1])[..., None]  # of the context in the sum of both
    return torch.lerp(own[0].to(share.dtype), context[0].to(share.dtype), share).to(rows.dtype)


def measure_split(
    heads: int, shape: LayerShape, dtype: torch.dtype, device: torch.device, longest: float = float("inf")
) -> float:
    """From how many cached tokens on the split is clearly faster than one masked attention; infinity if it is not.

    Tried with one layer of ``heads`` query heads at the contexts that ``longest`` allows, in turn, by the median and by the least
    seconds; takes milliseconds.
    """
    for context in TRIED_CONTEXTS:
        if context + _TRIED_ROWS > longest:
            break
        times = time_in_turn(attention_ways(context, _TRIED_ROWS, heads, shape, dtype, device), _ROUNDS, device)
        if all(kind(times["split"]) < _CLEARLY * kind(times["masked"]) for kind in (median, min)):
            return context
    return float("inf")


def attention_ways(
    context: int, size: int, heads: int, shape: LayerShape, dtype: torch.dtype, device: torch.device
) -> dict[str, Callable[[], torch.Tensor]]:
    """Both ways for a made-up tree of ``size`` rows, all of them children of the first, as a pass calls them."""
    numbers = torch.Generator().manual_seed(0)

    def some(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=numbers).to(device, dtype)

    fold = heads // shape.heads
    rows = some(1, shape.heads, fold * size, shape.key_width)
    keys = some(context + size, shape.heads, shape.key_width).transpose(0, 1)[None]
    values = some(context + size, shape.heads, shape.value_width).transpose(0, 1)[None]
    own = torch.full((size, size), -torch.inf, dtype=dtype).fill_diagonal_(0)
    own[:, 0] = 0
    own = own.repeat(fold, 1).to(device)
    mask = F.pad(own, (context, 0))
    scaling = shape.key_width**-0.5
    return {
        "masked": lambda: F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=scaling),
        "split": lambda: split_attention(rows, keys, values, own, context, scaling),
    }


@torch.inference_mode()
def time_in_turn(
    ways: dict[str, Callable[[], torch.Tensor]], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of every call but the first of each, which warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, call in ways.items():
            begin = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if turn:
                times[name].append(time.perf_counter() - begin)
    return times


def _with_log_sum(
    rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scaling: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the log-sum-exp [1, heads, rows] of its scores in fp32, or fp64 of fp64."""
    if rows.shape[-1] == values.shape[-1]:
        if rows.device.type == "cpu":
            output, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                rows, keys, values, attn_mask=mask, scale=scaling
            )
            return output, log_sum
        if mask is None and _has_flash(rows):
            output, log_sum, *_ = torch.ops.aten._scaled_dot_product_flash_attention(rows, keys, values, scale=scaling)
            return output, log_sum[..., : rows.shape[2]]
    kind = torch.float64 if rows.dtype == torch.float64 else torch.float32
    scores = (rows @ keys.transpose(-1, -2)).to(kind) * scaling
    if mask is not None:
        scores = scores + mask
    log_sum = scores.logsumexp(-1)
    return (scores - log_sum[..., None]).exp().to(values.dtype) @ values, log_sum


def _has_flash(rows: torch.Tensor) -> bool:
    """Whether torch's flash kernel for CUDA takes these rows as they are."""
    if rows.device.type != "cuda" or rows.dtype not in (torch.float16, torch.bfloat16):
        return False
    return (
        rows.shape[-1] % 8 == 0
        and rows.shape[-1] <= _FLASH_WIDTH
        and torch.cuda.get_device_capability(rows.device) >= (8, 0)
    )
