"""Defines custom torch operators, which are opaque nodes of compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_OPERATORS: Any = torch.library.Library("suffolk", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own


def define_operator(schema: str, compute: Callable[..., torch.Tensor], shape: Callable[..., torch.Tensor]) -> None:
    """Define ``torch.ops.suffolk.NAME``, for CPUs and without gradients; ``schema`` begins with NAME.

    ``shape``: returns, for the same arguments, an uninitialised tensor of the result's shape.
    """
    _OPERATORS.define(schema)
    name = schema.partition("(")[0]
    _OPERATORS.impl(name, compute, "CPU")
    torch.library.register_fake(f"suffolk::{name}", shape, lib=_OPERATORS)
