"""Tests the memory check of a model, which reads only file headers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from suffolk.datastore.errors import Corruption, ResourceExhausted
from suffolk.serving.decoding.engine.model import memory

CPU = torch.device("cpu")


def test_weights_are_added_up_in_the_type_they_will_have(tmp_path: Path) -> None:
    first = {"w": torch.zeros(10, 20), "n": torch.zeros(3, dtype=torch.int64)}
    save_file(first, tmp_path / "a.safetensors", {"format": "pt"})
    save_file({"v": torch.zeros(5, dtype=torch.bfloat16)}, tmp_path / "b.safetensors")
    assert memory.weight_bytes(tmp_path, None) == 800 + 24 + 10
    assert memory.weight_bytes(tmp_path, torch.float64) == 1600 + 24 + 40


def test_old_weight_files_count_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 77)
    assert memory.weight_bytes(tmp_path, None) == 77


@pytest.mark.parametrize(
    "content", [b"", b"abc", struct.pack("<Q", 2**60), struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"[]"]
)
def test_a_damaged_header_is_corruption(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(Corruption, match="safetensors header cannot be read"):
        memory.weight_bytes(tmp_path, None)


def test_what_does_not_fit_is_refused_with_the_sizes() -> None:
    memory.require_memory("m", 2**30, 2**30, 3 * 2**30, CPU)
    with pytest.raises(
        ResourceExhausted, match="model m: needs 2.00 GiB for its weights and 1.00 GiB for its cache, but cpu has 3.00"
    ):
        memory.require_memory("m", 2 * 2**30, 2**30, 3 * 2**30, CPU)


def test_some_memory_is_available() -> None:
    assert 2**20 < memory.available_memory(CPU) < 2**62


def test_only_running_out_of_memory_is_translated() -> None:
    with pytest.raises(ResourceExhausted, match="cache: out of memory"), memory.memory_guard("cache"):
        torch.empty(2**60)
    with pytest.raises(ResourceExhausted), memory.memory_guard("cache"):
        raise MemoryError
    with pytest.raises(RuntimeError, match="other"), memory.memory_guard("cache"):
        raise RuntimeError("other")
