"""What a step sends from the host to its device, without waiting for the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(array: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    """``array`` on ``device``. On a CPU its own memory; on CUDA a copy from pinned memory in the order of the stream.

    A copy from pageable memory would wait for all that the stream still has to do. Pinned memory comes from torch's cache, which
    hands it out again only when the copy is over.
    """
    host: Any = torch.from_numpy(array)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)  # type: ignore[no-any-return]
