"""Defines custom torch operators, which are opaque nodes of compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_OPERATORS: Any = torch.library.Library("suffolk", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own


def define_operator(
    schema: str,
    compute: Callable[..., torch.Tensor],
    shape: Callable[..., torch.Tensor],
    devices: Sequence[str] = ("CPU",),
) -> None:
    """Define ``torch.ops.suffolk.NAME``, without gradients; ``schema`` begins with NAME.

    Args:
        shape: returns, for the same arguments, an uninitialised tensor of the result's shape.
        devices: torch's dispatch keys of the devices that ``compute`` serves.
    """
    _OPERATORS.define(schema)
    name = schema.partition("(")[0]
    for device in devices:
        _OPERATORS.impl(name, compute, device)
    torch.library.register_fake(f"suffolk::{name}", shape, lib=_OPERATORS)
