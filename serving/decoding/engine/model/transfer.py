"""Copies from the host to the device that do not wait for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(array: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    """``array`` on ``device``: on a CPU the same memory, on CUDA a copy from pinned memory in stream order.

    A copy from pageable memory would wait for the whole stream. torch reuses pinned memory only after the copy.
    """
    host: Any = torch.from_numpy(array)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)  # type: ignore[no-any-return]
