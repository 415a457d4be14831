"""Checks the memory that models and caches need, turns out-of-memory errors into ResourceExhausted, and copies to the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open

from suffolk.datastore.errors import Corruption, ResourceExhausted
from suffolk.datastore.host_memory import host_memory

_HEADROOM = 1.05
_GIB = 1024.0**3
_ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_FLOATING = ("F64", "F32", "F16", "BF16")


_ADVICE = "use a smaller dtype (bfloat16), less capacity (slots, prompt, new tokens), or a smaller model"


def require_memory(name: str, weights: int, cache: int, available: int, device: torch.device) -> None:
    """Check that ``weights`` + ``cache`` bytes and a margin of 5 % fit into ``available``.

    Raises:
        ResourceExhausted: they do not fit; the message states the three sizes.
    """
    if (weights + cache) * _HEADROOM > available:
        raise ResourceExhausted(
            f"model {name}: needs {weights / _GIB:.2f} GiB for its weights and {cache / _GIB:.2f} GiB for its cache, but "
            f"{device.type} has {available / _GIB:.2f} GiB available; "
            "use a smaller dtype (bfloat16), fewer new tokens, or a smaller model"
        )


def available_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on ``device``: free GPU memory, or the memory that the kernel and the cgroup grant."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return host_memory()


def weight_bytes(folder: Path, dtype: torch.dtype | None) -> int:
    """Bytes of a model folder's weights in memory as ``dtype`` (None: as stored), read from its file headers.

    Raises:
        Corruption: a safetensors file has no readable header.
    """
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return sum(_tensor_bytes(file, dtype) for file in files)
    return sum(file.stat().st_size for file in folder.glob("*.bin"))


def cache_bytes(config: Any, tokens: int, itemsize: int) -> int:
    """The approximate bytes of the keys and values of ``tokens`` tokens, from a transformers config; 0 if it lacks the sizes."""
    config = config.get_text_config(decoder=True)
    heads = getattr(config, "num_attention_heads", 0) or 0
    width = getattr(config, "head_dim", None) or (getattr(config, "hidden_size", 0) // heads if heads else 0)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * getattr(config, "num_hidden_layers", 0) * kv_heads * width * itemsize * tokens)


@contextmanager
def memory_guard(what: str, advice: str = _ADVICE) -> Iterator[None]:
    """Turn torch's out-of-memory errors, of several types, into ResourceExhausted; its message ends with ``advice``."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise ResourceExhausted(f"{what}: out of memory; {advice}") from error


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return "can't allocate memory" in text or "not enough memory" in text or "out of memory" in text


def _tensor_bytes(file: Path, dtype: torch.dtype | None) -> int:
    try:
        with safe_open(file, "np") as stored:  # "pt" would need as much memory as the file has bytes
            tensors = [stored.get_slice(name) for name in stored.keys()]  # noqa: SIM118  it is no dict
            return sum(prod(each.get_shape()) * _item_bytes(each.get_dtype(), dtype) for each in tensors)
    except SafetensorError as error:
        raise Corruption(
            f"{file}: its safetensors header cannot be read ({error}); download or copy the model again"
        ) from error


def _item_bytes(stored: str, dtype: torch.dtype | None) -> int:
    return dtype.itemsize if dtype is not None and stored in _FLOATING else _ITEM_BYTES.get(stored, 1)


def to_device(array: npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
    """``array`` on ``device``: on a CPU the same memory, on CUDA a copy from pinned memory in stream order.

    A copy from pageable memory would wait for the whole stream. torch reuses pinned memory only after the copy.
    """
    host: Any = torch.from_numpy(array)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)  # type: ignore[no-any-return]
