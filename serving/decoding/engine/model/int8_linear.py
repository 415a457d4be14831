"""Linear layers of neural drafters on a CPU, with int8 weights and one scale per output.

A pass over few rows takes as long as reading the weights. int8 weights take half the bytes of bf16 weights and a quarter of
the bytes of fp32 weights. They change a layer's results by less than 1 %. The original weights stay in memory for passes
over many rows, such as passes over prompts. Targets are never compressed, because rounding would change the text.

Measured gain: a pass of SmolLM2-135M over one row takes 58 % of the bf16 kernel's time (docs/design/measured-mechanisms.md).
"""

from __future__ import annotations

import copy
import logging

import torch

from suffolk.serving.decoding.engine.model import memory
from suffolk.serving.decoding.engine.model.skinny_gemm import (
    MOST_ROWS,
    SkinnyLinear,
    fits_kernel,
    seconds,
    skinny_gemm,
    some_rows,
)

log = logging.getLogger(__name__)
_TRIAL_ROWS = (1, 2, 4, 8, 16, 32, MOST_ROWS)
_ROUNDS = 5
_PLAIN = (torch.nn.Linear, SkinnyLinear)
_TINY = torch.finfo(torch.float32).tiny
_CHUNK = 512
"""Outputs that are rounded at a time, because an fp32 copy of a whole output layer would take as much memory as the model."""


class Int8Linear(SkinnyLinear):
    """A linear layer that multiplies up to ``int8_rows`` rows by int8 weights, in inference mode.

    Attributes:
        int8_weight: int8[outputs, inputs].
        scales: float32[outputs], factors of ``int8_weight``.
        int8_rows: the most rows in a pass that uses the int8 weights.
        rounded_dtype: the dtype of the original weights, which rows must have.
    """

    int8_weight: torch.Tensor
    scales: torch.Tensor
    int8_rows: int
    rounded_dtype: torch.dtype

    @staticmethod
    def round(layer: torch.nn.Linear) -> Int8Linear:
        """Turn ``layer`` itself into an ``Int8Linear`` that does not use its int8 weights yet."""
        if not isinstance(layer, SkinnyLinear):
            SkinnyLinear.take_over(layer, frozenset())
        layer.__class__ = Int8Linear
        assert isinstance(layer, Int8Linear)
        layer.int8_weight, layer.scales = round_weights(layer.weight)
        layer.int8_rows, layer.rounded_dtype = 0, layer.weight.dtype
        return layer

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name for it
        rows = input.numel() // max(1, input.shape[-1])
        use = 1 <= rows <= self.int8_rows and input.dtype is self.rounded_dtype and torch.is_inference_mode_enabled()
        if not use or torch.compiler.is_compiling():
            return super().forward(input)
        return skinny_gemm(input, self.int8_weight, self.bias, self.scales)


def compress(model: torch.nn.Module) -> int:
    """Let a neural drafter's linear layers use int8 weights where that is faster on this machine.

    Returns the number of these layers.

    Takes about a second for 200 million weights, and one byte of memory per weight. If less than twice this memory is free, it
    logs a warning and changes nothing. Parameters and state_dict stay as they are. Only layers that qualify for ``accelerate``
    are changed, and ``accelerate`` must run first. Not thread-safe. No other thread may use the model. Not for targets.
    """
    layers = sorted(_rounding(model), key=lambda layer: layer.weight.numel(), reverse=True)
    needed, free = sum(layer.weight.numel() for layer in layers), memory.available_memory(torch.device("cpu"))
    if 2 * needed > free:
        log.warning(
            "drafters use their original weights: int8 weights would take %d MB of %d", needed >> 20, free >> 20
        )
        return 0
    # a copy of the layer, so that its int8 weights are freed if they are no faster
    rows = faster_rows(copy.copy(layers[0])) if layers else 0
    if not rows:
        return 0
    rounded = [Int8Linear.round(layer) for layer in layers]
    for each in rounded:
        each.int8_rows = rows if bool(each.scales.isfinite().all()) else 0
    return sum(each.int8_rows > 0 for each in rounded)


def compressed(layer: torch.nn.Module) -> torch.nn.Module:
    """A copy of ``layer`` with int8 weights if these are faster, else ``layer`` itself. ``layer`` stays unchanged."""
    twin = copy.copy(layer)
    return twin if compress(twin) else layer


def is_compressed(model: torch.nn.Module) -> bool:
    """Whether any layer of ``model`` uses int8 weights."""
    return any(isinstance(layer, Int8Linear) and layer.int8_rows > 0 for layer in model.modules())


def round_weights(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8[outputs, inputs], and scales float32[outputs]. Their product differs from ``weight`` by at most half a scale.

    If any weight of an output is not finite, the output's scale is not finite either.
    """
    numbers, scales = torch.empty(weight.shape, dtype=torch.int8), torch.empty(len(weight))
    with torch.no_grad():
        for begin in range(0, len(weight), _CHUNK):
            wide = weight[begin : begin + _CHUNK].to(torch.float32, copy=True)
            scale = wide.abs().amax(1).div_(127)
            scales[begin : begin + _CHUNK] = scale
            numbers[begin : begin + _CHUNK] = wide.div_(scale.clamp_(min=_TINY)[:, None]).round_()
    return numbers, scales


def _rounding(model: torch.nn.Module) -> list[torch.nn.Linear]:
    """The layers that may be rounded."""
    linear = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    return [layer for layer in linear if type(layer) in _PLAIN and fits_kernel(layer)]


@torch.inference_mode()
def faster_rows(linear: torch.nn.Linear) -> int:
    """The most rows for which int8 weights are faster; turns ``linear`` into an ``Int8Linear``."""
    found, layer = 0, Int8Linear.round(linear)
    for count in _TRIAL_ROWS:
        rows = some_rows(count, layer)
        times = [
            (seconds(layer, rows), seconds(skinny_gemm, rows, layer.int8_weight, None, layer.scales))
            for _ in range(_ROUNDS)
        ]
        plain, rounded = (min(each) for each in zip(*times, strict=True))
        if rounded >= plain:
            break
        found = count
    return found
