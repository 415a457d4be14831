"""Activation functions whose result for a number does not depend on the other numbers.

torch computes a function such as SiLU by vectors, and the end of each thread's part number by number. Both may differ in the last
bit. An ``EvenActivation`` therefore pads its input, so that all parts consist of whole vectors.
"""

from __future__ import annotations

import math

import torch
from transformers.activations import ACT2CLS

_VECTORS = 64
"""Numbers that torch computes together: two vectors of 16-bit numbers with AVX-512. Shorter vectors divide it."""
_GRAIN = 32_768
"""Numbers for each thread that torch uses (at::internal::GRAIN_SIZE)."""
_GELU_THREADS = 16_384
"""From more numbers than this on, torch computes GELU with all threads."""


class EvenActivation(torch.nn.Module):
    """Computes ``function``, a module that maps each number by itself."""

    def __init__(self, function: torch.nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name for it
        count = input.numel()
        whole = padded_count(count, torch.get_num_threads())
        if torch.compiler.is_compiling() or (whole == count and input.is_contiguous()):
            return self.function(input)  # type: ignore[no-any-return]
        padded = input.new_zeros(whole)
        padded[:count] = input.flatten()
        return self.function(padded)[:count].view(input.shape)  # type: ignore[no-any-return]


def padded_count(count: int, threads: int) -> int:
    """A number from ``count`` on that torch divides among up to ``threads`` in parts of whole vectors."""
    whole = count
    while whole % (part := _VECTORS * _parts(whole, threads)):
        whole = -(-whole // part) * part
    return whole


def _parts(count: int, threads: int) -> int:
    """A multiple of the numbers of threads that torch may use."""
    return math.lcm(max(1, min(threads, -(-count // _GRAIN))), threads if count > _GELU_THREADS else 1)


def make_even(model: torch.nn.Module) -> None:
    """Replace the activation functions of transformers in ``model`` by even ones."""
    known = {entry[0] if isinstance(entry, tuple) else entry for entry in ACT2CLS.values()}
    kinds = tuple(kind for kind in known if isinstance(kind, type) and kind is not torch.nn.Identity)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, kinds) and not isinstance(module, EvenActivation) and not list(child.parameters()):
                setattr(module, name, EvenActivation(child))
