"""A faster product for the target's largest matrix, on CPUs in fp32.

For 2 to 64 rows, the rows of a draft tree, the default fp32 product over a large vocabulary takes two to three times as
long as oneDNN's on weights packed beforehand. The model stays as it is; the packed copy costs the head's size once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

_MIN_ROWS, _MAX_ROWS = 2, 64
_TRIAL_ROWS = 12
_TRIALS = 4
_MIN_WEIGHTS = 4_000_000
"""Smaller heads take too little time to matter."""


def pack_head(model: Any) -> bool:
    """Let ``model``'s output layer use packed weights if that is right and faster here; whether it does.

    Only plain fp32 linear layers on a CPU with oneDNN qualify.
    """
    head = model.get_output_embeddings()
    if type(head) is not torch.nn.Linear or head.weight.device.type != "cpu" or head.weight.dtype != torch.float32:
        return False
    onednn: Any = torch.backends.mkldnn
    if head.weight.numel() < _MIN_WEIGHTS or not onednn.is_available():
        return False
    product = _packed_product(head)
    if product is None or not _is_right_and_faster(head, product):
        return False
    plain = head.forward

    def forward(input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name for it
        fits = _MIN_ROWS <= input.numel() // input.shape[-1] <= _MAX_ROWS and torch.is_inference_mode_enabled()
        return product(input) if fits else plain(input)

    setattr(head, "forward", forward)  # noqa: B010  # a method of this one object
    return True


def _packed_product(head: torch.nn.Linear) -> Callable[[torch.Tensor], torch.Tensor] | None:
    operators: Any = torch.ops.mkldnn
    try:
        with torch.inference_mode():
            packed = operators._reorder_linear_weight(head.weight.detach(), _TRIAL_ROWS)
    except (AttributeError, RuntimeError, NotImplementedError):  # torch was built without it, or it has moved
        return None

    def product(rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = operators._linear_pointwise(rows, packed, head.bias, "none", [], "")
        return found

    return product


@torch.inference_mode()
def _is_right_and_faster(head: torch.nn.Linear, product: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    rows = torch.sin(torch.arange(_TRIAL_ROWS * head.in_features, dtype=torch.float32)).view(_TRIAL_ROWS, -1)
    try:
        found = product(rows)
    except (AttributeError, RuntimeError, TypeError):
        return False
    expected = F.linear(rows, head.weight, head.bias)
    if not torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max())):
        return False
    return _fastest(lambda: product(rows)) < _fastest(lambda: F.linear(rows, head.weight, head.bias))


def _fastest(call: Callable[[], torch.Tensor]) -> float:
    times = []
    for _ in range(_TRIALS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)
