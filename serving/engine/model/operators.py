"""Our own operators of torch: what a graph that torch compiles calls without looking inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_OPERATORS: Any = torch.library.Library("suffolk", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own


def define_operator(schema: str, compute: Callable[..., torch.Tensor], shape: Callable[..., torch.Tensor]) -> None:
    """Make ``torch.ops.suffolk.NAME``, for CPUs and without gradients; ``schema`` begins with NAME.

    ``shape``: of the same arguments, gives a tensor like the result, whatever is in it.
    """
    _OPERATORS.define(schema)
    name = schema.partition("(")[0]
    _OPERATORS.impl(name, compute, "CPU")
    torch.library.register_fake(f"suffolk::{name}", shape, lib=_OPERATORS)
